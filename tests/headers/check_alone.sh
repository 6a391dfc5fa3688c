#!/usr/bin/env bash
# check_alone.sh LIST COMPILER FLAG...: compiles each header named in LIST by itself, included twice; names those
# that fail.
set -u
list=$1
shift

check() {
  header=$1
  shift
  if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" | "$@" -fsyntax-only -x c++ -; then
    echo "FAILED: $header"
    return 1
  fi
}
export -f check

if ! xargs -P 2 -I HEADER bash -c 'check HEADER "$@"' check "$@" <"$list"; then
  echo "Some headers do not compile alone with $1."
  exit 1
fi
echo "$(wc -l <"$list") headers compile alone with $1."
