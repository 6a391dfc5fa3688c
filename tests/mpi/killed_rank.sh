#!/usr/bin/env bash
# killed_rank.sh MPIRUN TRANSLATOR: kills one of three ranks. The job must end within a minute, with an error, and leave a folder
# that two ranks go on from, to the bits of a training by one process.
set -euo pipefail
mpirun=$1 translator=$2
here=$(dirname "${BASH_SOURCE[0]}")
work=$(mktemp -d)
job=
# Only what this script has started.
cleanup() { if [[ -n $job ]]; then kill "$job" 2>/dev/null || true; wait "$job" 2>/dev/null || true; fi; rm -rf "$work"; }
trap cleanup EXIT

words=(one two three four five six seven eight nine ten)
for ((i = 0; i < 300; ++i)); do
  a=${words[i % 10]} b=${words[i / 10 % 10]} c=${words[i * 7 / 3 % 10]}
  echo "$a $b $c" >>"$work/source"
  echo "$c $b $a" >>"$work/target"
done
train=(train --source "$work/source" --target "$work/target" --tokenizer word --d-model 16 --num-heads 2 --dim-feedforward 32
       --layers 1 --epochs 0 --batch-tokens 100 --accumulate 6 --validate-every 10 --schedule constant --warmup 5 --threads 1)
fail() {
  echo "FAILED: $*"
  for log in "$work"/*.log; do echo "== $log"; tail -n 20 "$log"; done
  exit 1
}

bash "$here/mpirun.sh" "$mpirun" 3 "$translator" "${train[@]}" --max-steps 1000000 --model "$work/model" >"$work/killed.log" 2>&1 &
job=$!
for ((i = 0; i < 600; ++i)); do
  compgen -G "$work/model/training/*.safetensors" >/dev/null && break
  kill -0 "$job" 2>/dev/null || fail "the training ended by itself"
  sleep 0.1
done
sleep 3  # for some more
# The ranks are the children of mpirun.
ranks=($(pgrep -P "$job"))
((${#ranks[@]} >= 3)) || fail "mpirun has ${#ranks[@]} children"
kill -KILL "${ranks[1]}"
SECONDS=0
code=0
wait "$job" || code=$?
job=
((SECONDS <= 60)) || fail "the job ended $SECONDS s after one of its ranks"
((code != 0)) || fail "the job ended with exit code 0"
grep -qi "killed\|signal 9" "$work/killed.log" || fail "nothing says that a rank was killed"
echo "ended after $SECONDS s with exit code $code"

# Where it stands, seen in a copy.
cp -r "$work/model" "$work/copy"
"$translator" train --resume --max-steps 1 --model "$work/copy" >"$work/copy.log" 2>&1 || fail "the folder cannot be resumed"
step=$(sed -n 's/^resuming after step \([0-9]*\).*/\1/p' "$work/copy.log")
[[ -n $step ]] || fail "no step is told"
((step > 0)) || fail "nothing was saved before the rank was killed"
grep -q "the training was saved with 3 ranks and resumes with 1 rank" "$work/copy.log" || fail "nothing says that ranks changed"

bash "$here/mpirun.sh" "$mpirun" 2 "$translator" train --resume --threads 1 --max-steps $((step + 15)) --model "$work/model" \
  >"$work/resumed.log" 2>&1 || fail "two ranks cannot go on"
grep -q "3 ranks and resumes with 2 ranks" "$work/resumed.log" || fail "nothing says that ranks changed to 2"
"$translator" "${train[@]}" --max-steps $((step + 15)) --model "$work/alone" >"$work/alone.log" 2>&1 || fail "one process cannot train"
cmp "$work/model/model.safetensors" "$work/alone/model.safetensors" || fail "the weights differ"
echo "killed after step $step, resumed by two ranks to step $((step + 15)): the weights of one process"
