#!/usr/bin/env bash
# browser.sh TRANSLATOR BUILD: builds examples/browser with emscripten and a small model of examples/translation, and compares what its engine
# translates under node with what the translator does.
set -euo pipefail
translator=$1 build=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rm -rf "$build"
mkdir -p "$build"
"$(dirname "$translator")/translation" "$build/model" 2000 2 >/dev/null
emcmake cmake -G Ninja -S "$root/examples/browser" -B "$build" -DMODEL="$build/model"
cmake --build "$build"

for subject in "The old woman" "Anna" "A clever child" "Our friends" "This cat"; do
  for rest in "slept yesterday." "can see the red book." "will visit a big city tomorrow." "did not eat the cake." "helped my mother."; do
    printf '%s %s\n' "$subject" "$rest"
  done
done >"$build/source"
printf '\nzzz\n' >>"$build/source"
"$translator" translate --model "$build/model" <"$build/source" >"$build/expected"
node "$root/examples/browser/translate.js" "$build/engine.js" <"$build/source" >"$build/found"
diff "$build/expected" "$build/found"
[[ $(wc -l <"$build/found") == 27 && $(sort -u "$build/found" | wc -l) -gt 3 ]]
