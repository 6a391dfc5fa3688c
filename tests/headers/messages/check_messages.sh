#!/usr/bin/env bash
# check_messages.sh NAMESPACE=MESSAGE... -- COMMAND...: runs COMMAND, a compiler that must fail, and passes when it says each
# MESSAGE (a fixed string) as an error, or as a constraint that does not hold, of an instantiation with a type of that NAMESPACE.
set -euo pipefail
expected=()
while [[ $1 != -- ]]; do
  expected+=("$1")
  shift
done
shift
if output=$("$@" 2>&1); then
  echo "it compiles: $*"
  exit 1
fi
# An error's first line of context names the type: "In instantiation of ... [with Model = lacks_step::Model ...]:".
errors=$(awk '/In (substitution|instantiation) of/ { context = $0 } / error: | evaluated to / { print context "\t" $0 }' <<<"$output")
failed=0
for pair in "${expected[@]}"; do
  if ! grep -F -- "${pair#*=}" <<<"$errors" | cut -f1 | grep -F -- "${pair%%=*}::" >/dev/null; then
    echo "not said of ${pair%%=*}: ${pair#*=}"
    failed=1
  fi
done
[[ $failed -eq 0 ]] || echo "$output"
exit $failed
