#!/usr/bin/env bash
# run.sh KIND COMPILER SCRATCH BUILD EIGEN COMPONENTS [WORKING FLAG...]: builds a client project with COMPILER in SCRATCH and runs it.
# KIND is a folder here; mixed is also the use with the include folder and a compiler alone, mixed_optimized the same
# with one of the files optimised. BUILD is this project's build folder, to
# install from; EIGEN the folder that holds Eigen/Core. COMPONENTS (a;b;...) were found
# there. The FLAGs are those of WORKING optional libraries.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
kind=$1 compiler=$2 scratch=$3 build=$4 eigen=$5 components=$6
flags=(-std=c++20 -O0 "-I$root/include" -isystem "$eigen" -pthread)
# What several client projects compile alike, and what has not changed since the last run, comes from ccache.
compile=("$compiler")
if command -v ccache >/dev/null; then
  export CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  compile=(ccache "$compiler")
fi

rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
case $kind in
  implementation)
    "${compile[@]}" "${flags[@]}" -c "$here/implementation/implementation.cpp" -o implementation.o &
    first=$!
    for file in main numbers; do
      "${compile[@]}" "${flags[@]}" -DEIGENFORMER_COMPILED -c "$here/implementation/$file.cpp" -o "$file.o"
    done
    wait "$first"
    "$compiler" implementation.o main.o numbers.o -pthread -o client
    ./client
    ;;
  mixed | mixed_optimized)
    working=$7 first_flags=(-O1)
    [[ $kind == mixed && $(uname -m) == x86_64 ]] && first_flags=(-mavx2 -mfma)
    if [[ ";$components;" == *";io;"* ]]; then flags+=(-DCLIENT_WITH_IO); else working=0; fi
    flags+=(-fPIC)
    "${compile[@]}" "${flags[@]}" "${first_flags[@]}" "${@:8}" -DEXPORTED=work_first -c "$here/mixed/library.cpp" -o first.o &
    first=$!
    "${compile[@]}" "${flags[@]}" -DNDEBUG -DEXPORTED=work_second -c "$here/mixed/library.cpp" -o second.o
    wait "$first"
    if [[ $kind == mixed ]]; then
      "${compile[@]}" -std=c++20 -c "$here/mixed/linked.cpp" -o linked.o
      for objects in "first.o second.o" "second.o first.o"; do
        # shellcheck disable=SC2086
        "$compiler" linked.o $objects "${@:8}" -pthread -o linked
        ./linked "$root/tests/fixtures" "$working"
      done
      "$compiler" linked.o second.o -pthread -o linked
      ./linked "$root/tests/fixtures" 0
    fi
    "$compiler" -std=c++20 "$here/mixed/shared.cpp" -ldl -o client
    # As they are, both shared libraries use one Runtime and its threads. If they export nothing but their function, each has its own.
    echo "{ global: work_*; local: *; };" >exports
    for runtimes in 1 2; do
      hidden=()
      [[ $runtimes == 2 ]] && hidden=(-Wl,--version-script=exports)
      "$compiler" -shared first.o "${hidden[@]}" "${@:8}" -pthread -o "first$runtimes.so"
      "$compiler" -shared second.o "${hidden[@]}" -pthread -o "second$runtimes.so"
      ./client "$runtimes" "./first$runtimes.so" "./second$runtimes.so" "$root/tests/fixtures" "$working"
    done
    ;;
  no_libraries)
    cmake --install "$build" --component dev --prefix "$scratch/prefix" >/dev/null
    without=(-DEIGENFORMER_SENTENCEPIECE_INCLUDE_DIR=OFF -DEIGENFORMER_ICU_INCLUDE_DIR=OFF -DEIGENFORMER_ZSTD_INCLUDE_DIR=OFF
      -DEIGENFORMER_BOOST_INCLUDE_DIR=OFF -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON
      -DMPI_EXECUTABLE_SUFFIX=.none -DPKG_CONFIG_EXECUTABLE=/bin/false)  # FindMPI runs, which makes its target even if it finds nothing
    no_json=-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
    configure() {
      cmake -S "$here/no_libraries" -B "$1" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS=-O0 "-DCMAKE_PREFIX_PATH=$scratch/prefix" \
        "${@:2}" 2>&1 | tr -s ' \n' ' '
    }
    says() {  # says OUTPUT TEXT...: each TEXT is in what CMake said
      for text in "${@:2}"; do
        [[ $1 == *"$text"* ]] || { echo "CMake does not say '$text' but: $1" >&2; exit 1; }
      done
    }
    said=$(configure client-build "${without[@]}" $no_json)
    says "$said" "nlohmann-json not found" "SentencePiece not found" "ICU not found" "zstd not found" "MPI not found"
    cmake --build client-build
    ./client-build/client
    # With nlohmann-json alone there is eigenformer::io.
    if [[ ";$components;" == *";io;"* ]]; then
      said=$(configure io-build "${without[@]}" -DREQUIRED_COMPONENT=io)
      says "$said" "zlib not found" "Boost.Beast (Boost 1.74 or newer) not found" "Generating done"
    fi
    if said=$(configure refused-build "${without[@]}" $no_json -DREQUIRED_COMPONENT=io); then
      echo "a component whose library is absent was found: $said" >&2
      exit 1
    fi
    says "$said" "nlohmann-json not found" "nlohmann-json3-dev" "there is no eigenformer::io; a library that it needs was not found"
    ;;
  *)
    prefix=()
    if [[ $kind == find_package ]]; then
      cmake --install "$build" --component dev --prefix "$scratch/prefix" >/dev/null
      prefix=("-DCMAKE_PREFIX_PATH=$scratch/prefix")
    fi
    cmake -S "$here/$kind" -B client-build -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS=-O0 \
      -DEIGENFORMER_KERNEL_OPTIMIZATION=-O0 -DEIGENFORMER_MODULE_OPTIMIZATION=-O0 \
      -DEIGENFORMER_SOURCE="$root" -DEIGENFORMER_COMPONENTS="$components" "${prefix[@]}"
    cmake --build client-build
    ./client-build/client
    if [[ $kind == find_package ]]; then
      if [[ ";$components;" == *";io;"* ]]; then ./client-build/io_alone; fi
      cmake --install client-build --prefix "$scratch/prefix" >/dev/null
      grep -q "eigenformer::eigenformer" "$scratch/prefix/share/cmake/wrapper/wrapper-config.cmake"
      [[ -f $scratch/prefix/share/doc/eigenformer-dev/copyright ]]
      if command -v pkg-config >/dev/null; then
        found=$(PKG_CONFIG_PATH=$scratch/prefix/share/pkgconfig pkg-config --cflags eigenformer)
        [[ $found == *-I* && $found == *eigen3* ]] || { echo "pkg-config says: $found" >&2; exit 1; }
      fi
    fi
    ;;
esac
