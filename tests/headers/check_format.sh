#!/usr/bin/env bash
# check_format.sh CLANG_FORMAT: all code has the layout of .clang-format.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mapfile -t files < <(find include translator tests examples bench cmake packaging -name '*.hpp' -o -name '*.cpp' | sort)
if ! "$1" --dry-run --Werror "${files[@]}"; then
  echo "Some files have another layout; '$1 -i FILE' rewrites one."
  exit 1
fi
echo "${#files[@]} files have clang-format's layout."
