#!/usr/bin/env bash
# aarch64.sh COMPILER QEMU EIGEN DOCTEST BUILD: compiles the tests of kernels/simd, gemm and packed for ARM with 64 bits, header-only, and
# runs them under qemu on a CPU with the dot product and on one without. EIGEN and DOCTEST are folders of headers.
set -euo pipefail
compiler=$1 qemu=$2 eigen=$3 doctest=$4 build=$5
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$build/include"
rm -f "$build"/*.o
ln -sfn "$doctest/doctest" "$build/include/doctest"  # $doctest itself may be /usr/include, which is another machine's
cd "$root/tests"

printf '%s\n' support/main.cpp kernels/{simd,gemm,packed}/test_*.cpp |
  xargs -P "$(nproc)" -I{} bash -c 'object=$0/$(basename "$1").o; shift; "$@" -c -o "$object"' "$build" {} \
    "$compiler" -std=c++20 -O1 -I"$root/include" -I. -Isupport -isystem "$build/include" -isystem "$eigen" {}
"$compiler" -static -o "$build/tests" "$build"/*.cpp.o

for cpu in max cortex-a53; do
  echo "on $cpu"
  "$qemu" -cpu "$cpu" "$build/tests"
done

# That one has the dot product and the other has not is what makes these two runs.
EIGENFORMER_ISA=neon_dotprod "$qemu" -cpu max "$build/tests" --source-file='*test_isa.cpp'
code=0
EIGENFORMER_ISA=neon_dotprod "$qemu" -cpu cortex-a53 "$build/tests" --source-file='*test_isa.cpp' || code=$?
if [[ $code != 77 ]]; then
  echo "FAILED: cortex-a53 was expected to lack neon_dotprod (code 77), and the tests ended with $code"
  exit 1
fi
