#!/usr/bin/env bash
# run.sh FOLDER: boundaries found in paragraphs of 5,000 random sentences of each corpus, as docs/translator/translating.md
# has them. FOLDER has multi30k/train.{en,de} and tatoeba-deu-eng/train.{en,de}, a sentence a line; the French
# sentences are french.txt, which was written for this.
set -euo pipefail
(($# == 1)) || { echo "usage: $0 folder" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
program=$(mktemp)
trap 'rm -f "$program"' EXIT
"${CXX:-g++}" -std=c++20 -O1 -DEIGENFORMER_WITH_ICU=1 -I"$here/../../include" -isystem /usr/include/eigen3 \
  "$here/boundaries.cpp" -licuuc -o "$program"
for language in en de; do
  for corpus in multi30k tatoeba-deu-eng; do
    "$program" "$language" 5000 "$1/$corpus/train.$language"
  done
done
"$program" fr 5000 "$here/french.txt"
