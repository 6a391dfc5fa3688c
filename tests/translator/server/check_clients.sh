#!/usr/bin/env bash
# check_clients.sh PROGRAM SOURCE-TARGET=FOLDER: asks a server of one model with curl and with libretranslatepy, LibreTranslate's
# client from PyPI, and stops it. Run by hand; needs curl and a python3 (or the one in $PYTHON) with libretranslatepy.
set -euo pipefail
program=$1
model=$2
pair=${model%%=*}
source=${pair%-*}
target=${pair#*-}
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
echo "a key for this test" >"$folder/keys"
"$program" serve --model "$model" --port 0 --api-key-file "$folder/keys" 2>"$folder/log" &
server=$!
for _ in $(seq 100); do
  url=$(sed -n 's/.*listening on //p' "$folder/log")
  [[ -n $url ]] && break
  sleep 0.1
done
[[ -n $url ]] || { cat "$folder/log"; exit 1; }

expect() {  # expect STATUS PATTERN CURL_ARGUMENT...
  local status=$1 pattern=$2
  shift 2
  local answer
  answer=$(curl -sS -w '\n%{http_code}' "$@")
  if [[ ${answer##*$'\n'} != "$status" || ! $answer =~ $pattern ]]; then
    echo "FAILED: curl $*: expected $status and $pattern, not"
    echo "$answer"
    exit 1
  fi
  echo "ok: curl ${*: -1}: ${answer%$'\n'*}" | head -c 300
  echo
}

key='Authorization: Bearer a key for this test'
text='A man walks through the snow.'
expect 200 '"status":"ok"' "${url}health"
expect 200 "\"code\":\"$source\"" "${url}languages"
expect 200 '"keyRequired":true' "${url}frontend/settings"
expect 200 'eigenformer_http_requests_total' -H "$key" "${url}metrics"
expect 200 '<title>' "${url}"
expect 401 '"error"' -d "q=$text" -d "source=$source" -d "target=$target" "${url}translate"
expect 403 '"error"' -d "q=$text" -d "source=$source" -d "target=$target" -d api_key=wrong "${url}translate"
expect 200 '"translatedText":".+"' -H "$key" -d "q=$text" -d "source=$source" -d "target=$target" "${url}translate"
expect 200 '"alternatives":\[' -H "$key" -H 'Content-Type: application/json' \
  -d "{\"q\": [\"$text\", \"$text\"], \"source\": \"auto\", \"target\": \"$target\", \"alternatives\": 2}" "${url}translate"
expect 200 '<b>.*</b>' -H "$key" -d "q=<p>A <b>man</b> walks.</p>" -d "source=$source" -d "target=$target" -d format=html \
  "${url}translate"
expect 200 'event: partial.*event: done' -N -H "$key" -d "q=$text" -d "source=$source" -d "target=$target" -d stream=true \
  "${url}translate"
expect 200 '"translatedText":".+"' -H "$key" -F "q=$text" -F "source=$source" -F "target=$target" "${url}translate"
printf '%s\n' "$text" > "$folder/letter.txt"
expect 200 'download_file/[0-9a-f]{32}.letter_'"$target"'.txt' -H "$key" -F "file=@$folder/letter.txt" -F "source=$source" \
  -F "target=$target" "${url}translate_file"
expect 200 '"/translate_file"' "${url}spec"
expect 400 '"error"' -H "$key" -d 'q=' -d "source=$source" -d "target=$target" "${url}translate"
expect 400 'not supported' -H "$key" -d "q=$text" -d source=xx -d "target=$target" "${url}translate"
expect 404 '"error"' "${url}nothing"
expect 405 '"error"' "${url}translate"
expect 413 '"error"' -H "$key" -d "q=$(head -c 100000 /dev/zero | tr '\0' a)" --data-binary "@$program" "${url}translate"
expect 422 '"error"' -H "$key" -d "q=$text" -d "source=$source" -d "target=$target" -d alternatives=1000 "${url}translate"

"${PYTHON:-python3}" - "$url" "$source" "$target" "$text" <<'PYTHON'
import sys
from libretranslatepy import LibreTranslateAPI

url, source, target, text = sys.argv[1:]
client = LibreTranslateAPI(url, "a key for this test")
translated = client.translate(text, source, target)
assert isinstance(translated, str) and translated, translated
languages = client.languages()
assert {language["code"] for language in languages} == {source, target}, languages
detected = client.detect(text)
assert detected[0]["language"] == source, detected
print("ok: libretranslatepy:", translated, languages, detected)
PYTHON

kill -TERM "$server"
wait "$server"
echo "ok: ended with 0 after SIGTERM"
grep -q "$text" "$folder/log" && { echo "FAILED: the log has a text"; exit 1; }
tail -n 3 "$folder/log"
