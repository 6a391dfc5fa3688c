#!/usr/bin/env bash
# Installs what is missing, builds with g++ and clang, and runs all tests: those of kernels and whatever trains, of
# programs, client projects and documents with g++; those of kernels, autograd and whatever reads files with clang and
# its sanitizers. With --full each of them with both compilers, and what takes long: the thread sanitizer, a minute of
# fuzzing for each reader of files, tests labelled long, clang-tidy, headers and client projects with both compilers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
full=OFF
case ${1:-} in
  "") ;;
  --full) full=ON ;;
  *)
    echo "usage: bash tests/run.sh [--full]" >&2
    exit 2
    ;;
esac

if [[ $full == ON ]]; then
  bash cmake/install_packages.sh
else
  bash cmake/install_packages.sh build translator tests bench
fi
if command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi
export CXX=g++
jobs=$(nproc)
folders="core;kernels;nn;optim;metrics;train;fixtures;examples;bench;headers;readme;consumer"
configurations="asan"
exclude=(--label-exclude long)
if [[ $full == ON ]]; then
  folders=""
  configurations="clang;asan;tsan;fuzz"
  exclude=()
fi

cmake --preset release -DEIGENFORMER_BUILD_TESTS=ON -DEIGENFORMER_BUILD_EXAMPLES=ON -DEIGENFORMER_BUILD_BENCH=ON \
  -DEIGENFORMER_TEST_FOLDERS="$folders" -DEIGENFORMER_TEST_CONFIGURATIONS="$configurations" -DEIGENFORMER_TEST_TIDY=$full \
  -DEIGENFORMER_TEST_ALL_CONSUMERS=$full
cmake --build build/release --parallel "$jobs"
ctest --test-dir build/release --output-on-failure --parallel "$jobs" "${exclude[@]}"
