#!/usr/bin/env bash
# configuration.sh PRESET: configures, builds and tests one more preset in build/tests-PRESET, with what is worth its
# time there, and with little optimisation, because most of the time goes to the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
build=build/tests-$preset
cmake_preset=$preset
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
      -DEIGENFORMER_MODULE_OPTIMIZATION=-O0
      -DEIGENFORMER_TEST_FOLDERS="core;kernels;autograd;nn;optim;data;io;search;metrics;train;translator;fixtures;examples;bench;readme")
    ;;
  asan)
    options+=(-DCMAKE_CXX_COMPILER="$(sanitizing_compiler address)" -DEIGENFORMER_BUILD_EXAMPLES=OFF
      -DEIGENFORMER_BUILD_BENCH=OFF
      # Checks of every pointer double the time that the kernels take to compile.
      "-DEIGENFORMER_KERNEL_OPTIMIZATION=-O1;-fno-sanitize=null,alignment,object-size,pointer-overflow"
      -DEIGENFORMER_TEST_FOLDERS="core;kernels;autograd;data;io;search;translator;fuzz")
    ;;
  fuzz)
    if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
      clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null; then
      exec bash tests/skip.sh "no clang++ with libFuzzer, so nothing is fuzzed (Debian and Ubuntu: clang, libclang-rt-dev)"
    fi
    options+=(-DCMAKE_CXX_COMPILER=clang++ -DEIGENFORMER_BUILD_EXAMPLES=OFF -DEIGENFORMER_BUILD_BENCH=OFF
      -DEIGENFORMER_TEST_FOLDERS=fuzz -DEIGENFORMER_TEST_FUZZ=ON)
    ;;
  aarch64)
    for program in clang++ aarch64-linux-gnu-g++ qemu-aarch64; do
      command -v $program >/dev/null ||
        exec bash tests/skip.sh "no $program, so nothing is tested on ARM (Debian and Ubuntu: clang, g++-aarch64-linux-gnu, qemu-user)"
    done
    # Headers without a library serve every machine, but not /usr/include as a whole, which has those of this one.
    headers=$PWD/$build/headers
    mkdir -p "$headers"
    for header in doctest/doctest.h nlohmann/json.hpp; do
      file=$(echo "#include <$header>" | g++ -x c++ -M - | grep -o "/[^ ]*/$header")
      ln -sfn "${file%/*}" "$headers/${header%/*}"
    done
    cat >"$headers/nlohmann_jsonConfig.cmake" <<'EOF'
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
set_target_properties(nlohmann_json::nlohmann_json PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
EOF
    options+=(-DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DEIGENFORMER_LIBRARY_COMPILER=aarch64-linux-gnu-g++
      -DEIGENFORMER_KERNEL_OPTIMIZATION=-O2 -DEIGENFORMER_DOCTEST_INCLUDE_DIR="$headers" -Dnlohmann_json_DIR="$headers"
      -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DEIGENFORMER_BOOST_INCLUDE_DIR= -DEIGENFORMER_BUILD_EXAMPLES=OFF -DEIGENFORMER_BUILD_BENCH=OFF
      -DEIGENFORMER_TEST_FOLDERS="core;kernels;autograd;nn;optim;search;fixtures")
    cmake_preset=release
    ;;
  tsan)
    options+=(-DCMAKE_CXX_COMPILER="$(sanitizing_compiler thread)" -DEIGENFORMER_BUILD_EXAMPLES=OFF
      -DEIGENFORMER_BUILD_BENCH=OFF -DEIGENFORMER_TEST_FOLDERS="core;kernels;data;search;train;translator")
    ;;
  *)
    echo "configuration.sh: no preset $preset; there are clang, asan, fuzz, tsan and aarch64" >&2
    exit 2
    ;;
esac

# Fuzzing is the sanitizers' configuration, run for longer.
# One instruction set a test is enough here: tests of kernels go through all by themselves.
labels=(--label-exclude long --exclude-regex ' on (eigen|baseline|avx2)$')
targets=()
if [[ $preset == fuzz ]]; then
  labels=(--label-regex long)
  cmake_preset=asan
  targets=(--target fuzz)
fi
cmake --preset "$cmake_preset" -B "$build" -DEIGENFORMER_BUILD_TESTS=ON -DEIGENFORMER_WARNINGS_AS_ERRORS=ON -DEIGENFORMER_TEST_BATCHES=ON "${options[@]}"
cmake --build "$build" --parallel "$jobs" "${targets[@]}"
# qemu-user 7.2 ends a process that forks while it has threads, and its own memory counts against limits; the other cases of these files run
# below. AMX has no test on ARM.
if [[ $preset == aarch64 ]]; then
  labels+=(--exclude-regex ' on (eigen|baseline|avx2)$|^core/runtime/test_(runtime|thread_pool)$|/test_gemm_amx$')
fi
# The thread sanitizer of some compilers cannot stand the address space of newer kernels.
without_random_addresses=()
if [[ $preset == tsan ]]; then
  if setarch -R true 2>/dev/null; then without_random_addresses=(setarch -R); fi
  export TSAN_OPTIONS="suppressions=$PWD/tests/support/tsan.supp"
fi
"${without_random_addresses[@]}" \
  ctest --test-dir "$build" --output-on-failure --parallel "$jobs" "${labels[@]}"

if [[ $preset == aarch64 ]]; then
  emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
  "${emulator[@]}" "$build/bin/test_core" --source-file='*/test_runtime.cpp,*/test_thread_pool.cpp' --test-suite-exclude=long \
    --test-case-exclude='*fork*,*in a child*,*the system refuses*,*cannot all start*'
  # By default qemu's CPU has the dot product, and this one has not.
  cortex_a53=("${emulator[@]}" -cpu cortex-a53 "$build/bin/test_kernels")
  "${cortex_a53[@]}" --source-file='*tests/kernels/gemm/*,*tests/kernels/packed/*,*tests/kernels/simd/*' --test-suite-exclude=long
  code=0
  EIGENFORMER_ISA=neon_dotprod "${cortex_a53[@]}" --source-file='*tests/kernels/simd/*' || code=$?
  if [[ $code != 77 ]]; then
    echo "FAILED: cortex-a53 was expected to lack neon_dotprod (code 77), and the tests ended with $code"
    exit 1
  fi
fi
