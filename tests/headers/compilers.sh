#!/usr/bin/env bash
# compilers.sh [COMPILER...]: checks all headers, and compiles and runs a small program, with each COMPILER, or with every g++-N and
# clang++-N that is installed; those of clang with libstdc++ and, where it is installed, libc++. Prints a table; run by hand, for it takes
# about a minute for each compiler. Debian 12 packages g++-11 and -12, clang-14, -15, -16, -19 and libc++-14-dev (one libc++ at a time).
set -euo pipefail
self=$(readlink -f "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/../.."
case ${1:-} in
  -h | --help) sed -n '2,4s/^# //p' "$self"; exit 0 ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
compilers=("$@")
if ((${#compilers[@]} == 0)); then
  mapfile -t compilers < <(compgen -c | grep -xE '(g|clang)\+\+-[0-9]+' | sort -u -t- -k1,1 -k2,2n)
fi
((${#compilers[@]})) || { echo "compilers.sh: no g++-N and no clang++-N is installed" >&2; exit 1; }

eigen=
for folder in /usr/include/eigen3 /usr/local/include/eigen3 /opt/homebrew/include/eigen3; do
  if [[ -e $folder/Eigen/Core ]]; then eigen=$folder && break; fi
done
[[ $eigen ]] || { echo "compilers.sh: Eigen not found" >&2; exit 1; }
flags=(-Iinclude -isystem "$eigen" -pthread -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Werror
       -Wno-error=deprecated-declarations)  # clang 19 warns of what libstdc++ 12 itself calls
# Files that need a library which is not installed are left out, as in CMake.
has() { [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]; }
skip='implementation\.hpp|-inl\.hpp|definitions\.hpp|train/distributed/mpi\.hpp'
has nlohmann/json.hpp || skip+='|eigenformer/(io|train)/|eigenformer/io\.hpp'
has sentencepiece_trainer.h && flags+=(-DEIGENFORMER_WITH_SENTENCEPIECE=1)
has unicode/uchar.h && flags+=(-DEIGENFORMER_WITH_ICU=1)
has zlib.h && flags+=(-DEIGENFORMER_WITH_ZLIB=1)
has zstd.h && flags+=(-DEIGENFORMER_WITH_ZSTD=1)
find include/eigenformer -name '*.hpp' | sort | grep -vE "$skip" | sed 's|include/\(.*\)|#include "\1"|' >"$scratch/all.cpp"

failed=0
try() {  # try NAME COMMAND...: prints yes or NO; what was said goes to the end
  if "${@:2}" >>"$scratch/said" 2>&1; then printf ' yes |'; else
    printf ' NO |'
    echo "-- $1 failed" >>"$scratch/said"
    cat "$scratch/said" >>"$scratch/failures"
    failed=1
  fi
  : >"$scratch/said"
}
echo "| compiler | library | all headers, C++20 | C++23 | a program runs |"
echo "|---|---|---|---|---|"
for compiler in "${compilers[@]}"; do
  for library in libstdc++ libc++; do
    standard=(); [[ $library == libc++ ]] && standard=(-stdlib=libc++)
    # Whether the C++ library is there.
    printf '#include <version>\n#if %sdefined(_LIBCPP_VERSION)\nint main() {}\n#endif\n' "$([[ $library == libc++ ]] || echo '!')" >"$scratch/there.cpp"
    "$compiler" "${standard[@]}" "$scratch/there.cpp" -o "$scratch/there" >/dev/null 2>&1 || continue
    printf '| %s | %s |' "$("$compiler" --version | head -1)" "$library"
    for language in c++20 c++2b; do
      try "$compiler $library $language" "$compiler" -std=$language "${standard[@]}" "${flags[@]}" -fsyntax-only "$scratch/all.cpp"
    done
    try "$compiler $library, examples/minimal" bash -c '"$@" && '"$scratch/program" -- "$compiler" -std=c++20 "${standard[@]}" -O0 -Iinclude \
      -isystem "$eigen" examples/minimal/main.cpp -pthread -o "$scratch/program"
    echo
  done
done
if ((failed)); then cat "$scratch/failures" >&2; fi
exit $failed
