#!/usr/bin/env bash
# configuration.sh PRESET: configures, builds and tests one more preset in build/PRESET, with what is worth its time
# there: clang compiles everything and runs the tests of the layers below training; the sanitizers take the folders in
# which they find most.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
jobs=$(nproc)
folders=""
tests=""
programs=OFF
case $preset in
  clang)
    tests='^(core|kernels|autograd|nn)/'
    programs=ON
    ;;
  asan) folders="core;kernels;autograd;nn;data;io;generation" ;;
  tsan) folders="core;kernels;data;generation;train" ;;
esac
cmake --preset "$preset" -DEIGENFORMER_BUILD_TESTS=ON -DEIGENFORMER_BUILD_EXAMPLES=$programs \
  -DEIGENFORMER_BUILD_BENCH=$programs -DEIGENFORMER_TEST_FOLDERS="$folders"
cmake --build "build/$preset" --parallel "$jobs"
ctest --test-dir "build/$preset" --output-on-failure --parallel "$jobs" --label-exclude long ${tests:+--tests-regex "$tests"}
