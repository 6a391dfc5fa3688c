#!/usr/bin/env bash
# bench/scaling/measure.sh PROGRAM OUT: runs PROGRAM (bench_scaling, all optimised) by 1, 2 and 4 ranks and over emulated networks, and
# writes one JSON object a line to OUT; bench/scaling/predict.py OUT reads it. About 6 minutes on 2 cores; nothing else should run.
# The delays of networks are slept in a wrapper of the communicator, after messages that went through memory.
set -euo pipefail
program=$1 out=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: >"$out"
common=(--threads 1 --updates 8 --tokens 1024)
run() {  # ranks, options
  local ranks=$1
  shift
  echo "$ranks ranks $*" >&2
  if ((ranks > 1)) && command -v mpirun >/dev/null; then
    bash "$root/tests/mpi/mpirun.sh" mpirun "$ranks" "$program" "${common[@]}" "$@" >>"$out"
  else
    "$program" "${common[@]}" --ranks "$ranks" "$@" >>"$out"
  fi
}

run 1
# The same update, of 4 batches, by 1, 2 and 4 ranks: its speed.
for ranks in 1 2 4; do run "$ranks" --accumulate 4; done
# What is sent, and how much of it backward hides.
for ranks in 2 4; do
  run "$ranks"
  run "$ranks" --serial
  run "$ranks" --bf16
  run "$ranks" --shard
  run "$ranks" --reduction native
done
run 2 --accumulate 4 --reduction local-first
# Networks: the predictions are compared with these.
for ranks in 2 4; do
  for network in "50 10" "50 1" "1000 10" "1000 1"; do
    read -r latency gbit <<<"$network"
    run "$ranks" --latency_us "$latency" --gbit "$gbit"
    run "$ranks" --latency_us "$latency" --gbit "$gbit" --serial
  done
done
run 2 --latency_us 50 --gbit 1 --bf16
run 2 --latency_us 50 --gbit 1 --accumulate 4
run 2 --latency_us 50 --gbit 1 --accumulate 4 --reduction local-first
