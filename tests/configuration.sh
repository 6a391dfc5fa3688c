#!/usr/bin/env bash
# configuration.sh PRESET: configures, builds and tests one more preset in build/tests-PRESET, with what is worth its
# time there, and with little optimisation, because most of the time goes to the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
build=build/tests-$preset
jobs=$(nproc)
options=()

# GCC's sanitizers take several times longer to compile; but clang's may not be installed.
sanitizing_compiler() {
  if echo 'int main() {}' | clang++ -fsanitize="$1" -x c++ - -o /dev/null 2>/dev/null; then
    echo clang++
  else
    echo g++
  fi
}

case $preset in
  clang)
    options+=(-DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" -DEIGENFORMER_BUILD_EXAMPLES=ON -DEIGENFORMER_BUILD_BENCH=ON
      -DEIGENFORMER_EXAMPLES_OPTIMIZATION=-O0 -DEIGENFORMER_BENCH_OPTIMIZATION=-O0 -DEIGENFORMER_KERNEL_OPTIMIZATION=-O1
      -DEIGENFORMER_TEST_FOLDERS="core;kernels;autograd;nn;optim;data;io;generation;metrics;train;server;fixtures;examples;bench;readme")
    ;;
  asan)
    options+=(-DCMAKE_CXX_COMPILER="$(sanitizing_compiler address)" -DEIGENFORMER_BUILD_EXAMPLES=OFF
      -DEIGENFORMER_BUILD_BENCH=OFF
      # Checks of every pointer double the time that the kernels take to compile.
      "-DEIGENFORMER_KERNEL_OPTIMIZATION=-O1;-fno-sanitize=null,alignment,object-size,pointer-overflow"
      -DEIGENFORMER_TEST_FOLDERS="core;kernels;autograd;data;io;generation;server;fuzz")
    ;;
  fuzz)
    if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
      clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null; then
      exec bash tests/skip.sh "no clang++ with libFuzzer, so nothing is fuzzed (Debian and Ubuntu: clang, libclang-rt-dev)"
    fi
    options+=(-DCMAKE_CXX_COMPILER=clang++ -DEIGENFORMER_BUILD_EXAMPLES=OFF -DEIGENFORMER_BUILD_BENCH=OFF
      -DEIGENFORMER_TEST_FOLDERS=fuzz -DEIGENFORMER_TEST_FUZZ=ON)
    ;;
  tsan)
    options+=(-DCMAKE_CXX_COMPILER="$(sanitizing_compiler thread)" -DEIGENFORMER_BUILD_EXAMPLES=OFF
      -DEIGENFORMER_BUILD_BENCH=OFF -DEIGENFORMER_TEST_FOLDERS="core;kernels;data;generation;train;server")
    ;;
  *)
    echo "configuration.sh: no preset $preset; there are clang, asan, fuzz and tsan" >&2
    exit 2
    ;;
esac

# Fuzzing is the sanitizers' configuration, run for longer.
# One instruction set a test is enough here: tests of kernels go through all by themselves.
labels=(--label-exclude long --exclude-regex ' on (eigen|baseline|avx2)$')
cmake_preset=$preset
targets=()
if [[ $preset == fuzz ]]; then
  labels=(--label-regex long)
  cmake_preset=asan
  targets=(--target fuzz)
fi
cmake --preset "$cmake_preset" -B "$build" -DEIGENFORMER_BUILD_TESTS=ON -DEIGENFORMER_WARNINGS_AS_ERRORS=ON -DEIGENFORMER_TEST_BATCHES=ON "${options[@]}"
cmake --build "$build" --parallel "$jobs" "${targets[@]}"
# The thread sanitizer of some compilers cannot stand the address space of newer kernels.
without_random_addresses=()
if [[ $preset == tsan ]]; then
  if setarch -R true 2>/dev/null; then without_random_addresses=(setarch -R); fi
  export TSAN_OPTIONS="suppressions=$PWD/tests/support/tsan.supp"
fi
"${without_random_addresses[@]}" \
  ctest --test-dir "$build" --output-on-failure --parallel "$jobs" "${labels[@]}"
