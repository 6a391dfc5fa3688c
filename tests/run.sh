#!/usr/bin/env bash
# Installs what is missing, builds in build/tests, and runs the tests: all but those that take minutes each.
#   --sanitize  clang's address and undefined behaviour sanitizers instead, for what handles memory and files (build/tests-asan)
#   --full      everything: tests labelled long, clang, g++ for the translator and all clients, both sanitizers, a minute of fuzzing for each reader of
#               files, ARM under qemu, clang-tidy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
full=OFF
case ${1:-} in
  "" | --sanitize) ;;
  --full) full=ON ;;
  *)
    echo "usage: bash tests/run.sh [--sanitize | --full]" >&2
    exit 2
    ;;
esac

if [[ $full == ON ]]; then
  bash cmake/install_packages.sh
else
  bash cmake/install_packages.sh build translator tests bench
fi
export CMAKE_GENERATOR=Ninja  # of the client projects; the presets say so themselves
if [[ ${1:-} == --sanitize ]]; then exec bash tests/configuration.sh asan; fi
# clang compiles tests in a third of g++'s time; the library, numeric tests and most client projects are g++'s, as most users have it.
export CXX=clang++
jobs=$(nproc)
configurations=""
exclude=(--label-exclude long)
if [[ $full == ON ]]; then
  configurations="clang;asan;tsan;fuzz;aarch64"
  exclude=()
fi

# Seeds of fuzzing are worth their time with sanitizers alone.
cmake --preset release -B build/tests -DEIGENFORMER_BUILD_TESTS=ON -DEIGENFORMER_BUILD_EXAMPLES=ON -DEIGENFORMER_BUILD_BENCH=ON \
  -DEIGENFORMER_WARNINGS_AS_ERRORS=ON -DEIGENFORMER_LIBRARY_COMPILER=g++ -DEIGENFORMER_EXAMPLES_OPTIMIZATION=-O0 -DEIGENFORMER_BENCH_OPTIMIZATION=-O0 -DEIGENFORMER_TEST_BATCHES=ON \
  -DEIGENFORMER_TEST_FOLDERS="core;kernels;autograd;nn;optim;data;io;search;metrics;train;translator;allocations;fixtures;mpi;examples;bench;headers;readme;consumer" \
  -DEIGENFORMER_TEST_CONFIGURATIONS="$configurations" -DEIGENFORMER_TEST_TIDY=$full -DEIGENFORMER_TEST_ALL_COMPILERS=$full
cmake --build build/tests --parallel "$jobs"
# Some tests wait for a process or a clock, so one more runs than there are cores.
ctest --test-dir build/tests --output-on-failure --parallel "$((jobs + 1))" "${exclude[@]}"
