#!/usr/bin/env bash
# other_compiler.sh NEW OLD COMMAND...: runs COMMAND, a call of the compiler OLD, with the compiler NEW.
set -euo pipefail
new=$1 old=$2
shift 2
command=()
while [[ $# -gt 0 ]]; do
  case $1 in
    "$old") command+=("$new") ;;
    -Xclang) shift ;;  # cmake/ccache.cmake's option for precompiled headers
    --target=*) ;;     # of clang as a cross compiler; NEW is one by itself
    *) command+=("$1") ;;
  esac
  shift
done
exec "${command[@]}"
