#!/usr/bin/env bash
# follow_page.sh PAGE ROOT TRANSLATOR [PROGRAM]: runs the commands of a page of the documentation, literally and in their order, in an
# empty folder, which has the checkout under the name eigenformer.
#
# A command is a line of a block of `sh`, or one after "$ " in another block, whose next lines are then its output. In the line before
# a block:
#   <!-- not run: why -->   the block is for people only
#   <!-- file NAME -->      the block is the text of a file, which the page tells the reader to save
#   <!-- prints -->         the block is what the block of commands before it prints
#   <!-- with NAME=FOLDER ... -->  copies of folders in tests/fixtures, or in tests/fixtures/checkpoints, which the reader is to have
# A corpus (*.en, *.de, *.fr, *.tsv) that a command reads and that does not exist is the reader's own: a small one is made. Blocks are often
# alternatives, so what one is to write is removed first. PROGRAM is the page's program, compiled: then g++ only copies it.
set -euo pipefail
shopt -s extglob
page=$1 root=$2 real=$3 program=${4:-}
name=${page#"$root/"}
home=$(mktemp -d)
clean_up() {
  if [[ -e $home/tools/serve.pid ]]; then kill "$(cat "$home/tools/serve.pid")" || true; fi
  rm -rf "$home"
}
trap clean_up EXIT
mkdir -p "$home/tools" "$home/page/build/release"
ln -s "$root" "$home/page/eigenformer"
ln -s "$home/tools" "$home/page/build/release/bin"
cd "$home/page"

# Trainings are short and their models small; servers take any free port and work until the page ends.
cat >"$home/tools/translator" <<END
#!/usr/bin/env bash
real='$real' tools='$home/tools'
END
cat >>"$home/tools/translator" <<'END'
case ${1:-} in
  train)
    [[ " $* " == *" --max-steps "* ]] || set -- "$@" --max-steps 2
    [[ " $* " =~ " --"(d-model|init-from|resume)" " ]] || set -- "$@" --d-model 32 --heads 2 --ff 32
    ;;
  serve)
    "$real" "$@" --port 0 </dev/null >"$tools/serve.log" 2>&1 &
    echo $! >"$tools/serve.pid"
    for ((i = 0; i < 300; ++i)); do
      port=$(sed -nE 's|.*http://127\.0\.0\.1:([0-9]+).*|\1|p' "$tools/serve.log" | head -1)
      if [[ -n $port ]]; then echo "$port" >"$tools/port" && exit 0; fi
      kill -0 $! 2>/dev/null || break
      sleep 0.1
    done
    cat "$tools/serve.log" >&2
    exit 1
    ;;
esac
exec "$real" "$@"
END
cat >"$home/tools/translation" <<END
#!/usr/bin/env bash
rm -rf "\$1" && exec '$(dirname "$real")/translation' "\$1" 300 1
END
cat >"$home/tools/curl" <<END
#!/usr/bin/env bash
exec $(command -v curl || echo false) --silent "\${@//127.0.0.1:5000/127.0.0.1:\$(cat '$home/tools/port')}"
END
if [[ -n $program ]]; then
  cat >"$home/tools/g++" <<END
#!/usr/bin/env bash
while [[ \$1 != -o ]]; do shift; done
cp '$program' "\$2"
END
fi
chmod +x "$home"/tools/*
PATH=$home/tools:$PATH

fail() {
  echo "$name:$1: $2"
  exit 1
}

# Pairs of sentences, in the words of the small models of tests/fixtures.
corpus() {  # LANGUAGE
  local i j k
  local -a subject verb object
  case $1 in
    de) subject=(Ich Wir "Der Hund") verb=(sehe lese kaufe) object=("den Hund" "den Vogel" "das Buch" "ein Haus") ;;
    *) subject=(I We "The dog") verb=(see read buy) object=("the dog" "the bird" "the book" "a house") ;;
  esac
  for i in 0 1 2; do for j in 0 1 2; do for k in 0 1 2 3; do echo "${subject[i]} ${verb[j]} ${object[k]}."; done; done; done
}

make_corpora() {  # COMMANDS
  local file
  for file in $(grep -oE '[A-Za-z0-9_./-]+\.(en|de|fr|tsv)(\.gz|\.zst)?\b' <<<"$1" | sort -u); do
    if [[ -e $file || " ${1//$'\n'/ } " =~ (--output|\>)\ +"$file"\  ]]; then continue; fi
    case $file in
      *.gz) corpus "$(basename "${file%.gz}" | sed 's/.*\.//')" | gzip >"$file" ;;
      *.tsv) paste <(corpus en) <(corpus de) >"$file" ;;
      *.zst) corpus "$(basename "${file%.zst}" | sed 's/.*\.//')" >"$file" ;;  # plain text is read, too
      *) corpus "${file##*.}" >"$file" ;;
    esac
  done
}

remove_results() {  # COMMANDS
  local line
  while IFS= read -r line; do
    if [[ $line == *--resume* || $line == *--continue* ]]; then continue; fi
    if [[ $line =~ translator\ (train|import).*--model\ ([^ ]+) ]]; then rm -rf "./${BASH_REMATCH[2]}"; fi
    if [[ $line =~ --output\ ([^ ]+) ]]; then rm -rf "./${BASH_REMATCH[1]}"; fi
  done <<<"${1//\\$'\n'/ }"
}

run() {  # LINE COMMANDS: sets `output`
  make_corpora "$2"
  remove_results "$2"
  output=$(timeout 600 bash -euo pipefail -c "$2" </dev/null 2>"$home/errors") && return
  printf '%s\n' "$2" "$output" "$(tail -20 "$home/errors")"
  fail "$1" "the commands failed"
}

# Texts are equal, numbers up to rounding, which differs between instruction sets.
same() {  # EXPECTED FOUND
  perl -e 'sub parts { split /(-?\d+\.\d+)/, $_[0] } my @a = parts($ARGV[0]); my @b = parts($ARGV[1]); exit 1 if @a != @b;
           for (0 .. $#a) { exit 1 if $a[$_] ne $b[$_] && ($_ % 2 == 0 || abs($a[$_] - $b[$_]) > 1e-3 * (1 + abs($a[$_]))) }' "$1" "$2"
}

expect() {  # LINE EXPECTED
  if ! same "$2" "$output"; then
    printf 'expected:\n%s\nfound:\n%s\n' "$2" "$output"
    fail "$1" "the commands print something else"
  fi
}

# Calls `$1 LINE LANGUAGE COMMENT TEXT` for each block of the page.
each_block() {
  local line text="" language="" comment="" previous="" number=0 begin=0 inside=false
  while IFS= read -r line; do
    number=$((number + 1))
    if ! $inside && [[ $line == '```'* ]]; then
      inside=true language=${line#'```'} begin=$number text=""
      comment=""
      if [[ $previous =~ ^'<!-- '(.*)' -->'$ ]]; then comment=${BASH_REMATCH[1]}; fi
    elif $inside && [[ $line == '```' ]]; then
      inside=false
      "$1" "$begin" "$language" "$comment" "${text%$'\n'}"
    elif $inside; then
      text+=$line$'\n'
    fi
    previous=$line
  done <"$page"
}

# Copies folders of tests/fixtures: NAME=FOLDER ...
have() {
  local pair from
  for pair in "$@"; do
    from=$root/tests/fixtures/${pair#*=}
    [[ -e $from ]] || from=$root/tests/fixtures/checkpoints/${pair#*=}
    mkdir -p "$(dirname "./${pair%%=*}")"
    cp -r "$from" "./${pair%%=*}"
  done
}

follow() {  # LINE LANGUAGE COMMENT TEXT
  local line command="" expected="" at=$1
  if [[ $3 == "not run: "* || $2 == cpp && $3 != "file "* ]]; then return; fi
  if [[ $3 == "with "* ]]; then have ${3#with }; fi
  if [[ $3 == "file "* ]]; then
    printf '%s\n' "$4" >"${3#file }"
    if [[ $2 == json ]]; then make_corpora "$4"; fi
  elif [[ $3 == prints ]]; then
    expect "$1" "$4"
  elif [[ $2 == sh ]]; then
    run "$1" "$4"
    blocks=$((blocks + 1))
  elif [[ $4 == '$ '* ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      if [[ $line == '$ '* ]]; then
        if [[ -n $command ]]; then run "$at" "$command" && expect "$at" "${expected%$'\n'}"; fi
        command=${line#'$ '} expected="" at=$1
      elif [[ $command == *\\ ]]; then
        command+=$'\n'$line
      else
        expected+=$line$'\n'
      fi
    done <<<"$4"
    run "$at" "$command"
    expect "$at" "${expected%$'\n'}"
    blocks=$((blocks + 1))
  elif [[ $2 == @(bash|shell|console) || -z $2 && $4 =~ ^(translator|echo|bash|cmake|curl|g\+\+|jq|python3|bench/)[\ /] ]]; then
    fail "$1" "a block of commands needs the language sh"
  fi
}

blocks=0
each_block follow
echo "$blocks blocks of commands did what $name says."
