#!/bin/bash
# check_marian.sh FOLDER [BUILD]: imports small models that Marian made, and compares what they say with
# Marian's own outputs. FOLDER has a folder for each model (ssru, selfattn), with model*.bin, *.spm and the
# outputs <precision>[.lex].<search>.<kind>, gzipped or not, and input.en beside them. BUILD: the build folder
# (default: build/release), in which `cmake --build BUILD --target check_marian` made the program.
#
# The files are not part of the repository: they are made from texts that may not be redistributed.
set -euo pipefail
folder=${1:?usage: check_marian.sh FOLDER [BUILD]}
build=${2:-$(dirname "$0")/../../build/release}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$folder"/. "$copy"
chmod -R u+w "$copy"
gunzip -rq "$copy"
"$build/bin/check_marian" "$copy"
