#!/usr/bin/env bash
# run.sh [FOLDER [PAIRS [EPOCHS]]]: installs what is missing, builds the example and runs it: it learns a small language from nothing and
# translates. FOLDER keeps the model.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash cmake/install_packages.sh build

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building build/release/bin/translation (a minute or two the first time) ..."
show_steps() {  # on a terminal Ninja's [step/steps] in one line; all output goes to the log
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    if [[ -t 1 && $line =~ ^\[[0-9]+/[0-9]+\] ]]; then printf '\r%s ' "${BASH_REMATCH[0]}"; fi
  done
  if [[ -t 1 ]]; then echo; fi
}
if ! { cmake --preset release && cmake --build build/release --target translation --parallel "$(nproc)"; } 2>&1 </dev/null | show_steps; then
  cat "$log" >&2
  exit 1
fi
build/release/bin/translation "$@"
