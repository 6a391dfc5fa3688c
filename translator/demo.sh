#!/usr/bin/env bash
# Installs what is missing, builds the translator and shows it: it learns a small language from nothing and translates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash cmake/install_packages.sh build translator

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building build/release/bin/translator (five to ten minutes the first time) ..."
show_steps() {  # on a terminal Ninja's [step/steps] in one line; all output goes to the log
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    if [[ -t 1 && $line =~ ^\[[0-9]+/[0-9]+\] ]]; then printf '\r%s ' "${BASH_REMATCH[0]}"; fi
  done
  if [[ -t 1 ]]; then echo; fi
}
# The files of the tool are compiled together, in two parts: less than half the work.
if ! { cmake --preset release -DEIGENFORMER_TEST_BATCHES=ON && cmake --build build/release --target translator --parallel "$(nproc)"; } \
  2>&1 </dev/null | show_steps; then
  cat "$log" >&2
  exit 1
fi
build/release/bin/translator demo "$@"
