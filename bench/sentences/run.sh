#!/usr/bin/env bash
# run.sh FOLDER [LOCALES...]: boundaries found in paragraphs of 5,000 random sentences of each corpus, as
# docs/translator/translating.md has them. FOLDER has multi30k/train.{en,de} and tatoeba-deu-eng/train.{en,de}, a sentence a
# line. French sentences are french.txt, which was written for this, and the messages of programs in the folders LOCALES, such
# as /usr/share/locale.
set -euo pipefail
(($# >= 1)) || { echo "usage: $0 folder [locales...]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
program=$work/boundaries
trap 'rm -rf "$work"' EXIT
"${CXX:-g++}" -std=c++20 -O1 -DEIGENFORMER_WITH_ICU=1 -I"$here/../../include" -isystem /usr/include/eigen3 \
  "$here/boundaries.cpp" -licuuc -o "$program"
for language in en de; do
  for corpus in multi30k tatoeba-deu-eng; do
    "$program" "$language" 5000 "$1/$corpus/train.$language"
  done
done
"$program" fr 5000 "$here/french.txt"
if (($# > 1)); then
  python3 "$here/messages.py" fr "${@:2}" >"$work/messages.fr"
  "$program" fr 5000 "$work/messages.fr"
fi
