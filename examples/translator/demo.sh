#!/usr/bin/env bash
# Installs what is missing, builds the translator and shows it: it learns a small language from nothing and translates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash cmake/install_packages.sh build translator

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building build/release/bin/translator (five to ten minutes the first time) ..."
if ! { cmake --preset release && cmake --build build/release --target translator --parallel "$(nproc)"; } \
  >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  exit 1
fi
build/release/bin/translator demo "$@"
