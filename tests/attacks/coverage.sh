#!/usr/bin/env bash
# coverage.sh [--folders "core;io;..."] [--build DIR] [--badge FILE.svg] [--long]: line coverage of include/ by the tests.
#
# Builds the tests (of all folders, or of those given) with clang's -fprofile-instr-generate -fcoverage-mapping in DIR (build/coverage),
# runs them, and prints the share of the lines of include/eigenformer that ran: for each folder, and in all. DIR/uncovered.txt lists the
# lines that did not, as file:first-last; --badge writes the share in all as a picture. Tests labelled long are left out, unless --long is
# given. Run by hand: it takes an hour or so of two cores for everything.
set -euo pipefail
self=$(readlink -f "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/../.."
build=build/coverage
folders="core;kernels;autograd;nn;optim;data;io;search;metrics;train;translator;fixtures;examples"
exclude=(--label-exclude long)
badge=
while (($#)); do
  case $1 in
    --folders) folders=$2 && shift 2 ;;
    --build) build=$2 && shift 2 ;;
    --badge) badge=$(realpath -m "$2") && shift 2 ;;
    --long) exclude=() && shift ;;
    -h | --help) sed -n '2,/^set /s/^# //p' "$self"; exit 0 ;;
    *) echo "coverage.sh: $1 is not an option; see --help" >&2 && exit 2 ;;
  esac
done
tools=$(dirname "$(readlink -f "$(command -v clang++)")")
[[ -x $tools/llvm-cov && -x $tools/llvm-profdata ]] || { echo "coverage.sh: llvm-cov not found beside clang++ (Debian and Ubuntu: llvm)" >&2; exit 1; }

examples=OFF
if [[ ";$folders;" == *";examples;"* ]]; then examples=ON; fi
flags="-fprofile-instr-generate -fcoverage-mapping"
# The kernels need -O1, or their vectors take minutes; batches compile in a third of the time.
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" -DEIGENFORMER_KERNEL_OPTIMIZATION=-O1 -DEIGENFORMER_EXAMPLES_OPTIMIZATION=-O0 \
  -DEIGENFORMER_BUILD_TESTS=ON -DEIGENFORMER_BUILD_BENCH=OFF -DEIGENFORMER_BUILD_EXAMPLES=$examples -DEIGENFORMER_TEST_BATCHES=ON \
  -DEIGENFORMER_TEST_FOLDERS="$folders"
cmake --build "$build"
rm -rf "$build/profiles"
mkdir -p "$build/profiles"
# One profile for each program, which its runs add to.
LLVM_PROFILE_FILE=$PWD/$build/profiles/%m.profraw
[[ $build == /* ]] && LLVM_PROFILE_FILE=$build/profiles/%m.profraw
export LLVM_PROFILE_FILE
tests=0
ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" "${exclude[@]}" -E ' on (eigen|baseline|avx2)$' || tests=$?
"$tools/llvm-profdata" merge -sparse "$build"/profiles/*.profraw -o "$build/all.profdata"

# Each program by itself: a function may differ between programs, and llvm-cov leaves out those that do.
: >"$build/coverage.lcov"
for program in "$build"/bin/*; do
  [[ -x $program && -f $program ]] || continue
  "$tools/llvm-cov" export "$program" -instr-profile "$build/all.profdata" -format lcov \
    -ignore-filename-regex '/usr/|/tests/|/examples/' >>"$build/coverage.lcov" 2>>"$build/llvm-cov.log"
done
python3 - "$build" "$badge" <<'END'
import collections, os, sys

build, badge = sys.argv[1:]
home = os.path.join(os.getcwd(), "include", "eigenformer") + os.sep
lines, name = collections.defaultdict(dict), None
with open(os.path.join(build, "coverage.lcov")) as file:
    for line in file:
        if line.startswith("SF:"):
            name = os.path.realpath(line[3:].strip())
        elif line.startswith("DA:") and name.startswith(home):
            number, count = map(int, line[3:].split(",")[:2])
            of_file = lines[name[len(home):]]
            of_file[number] = max(count, of_file.get(number, 0))
folders = collections.defaultdict(lambda: [0, 0])
with open(os.path.join(build, "uncovered.txt"), "w") as out:
    for name in sorted(lines):
        counts = lines[name]
        for key in (name.split("/")[0] if "/" in name else "(top)", "all"):
            folders[key][0] += sum(c > 0 for c in counts.values())
            folders[key][1] += len(counts)
        first = last = None
        for number in [n for n in sorted(counts) if counts[n] == 0] + [None]:
            if last is not None and number == last + 1:
                last = number
                continue
            if first is not None:
                out.write(f"include/eigenformer/{name}:{first}-{last}\n")
            first = last = number
if not folders:
    sys.exit("coverage.sh: no line of include/eigenformer was compiled")
print("| folder | lines | covered | share |\n|---|---:|---:|---:|")
for key in [k for k in folders if k != "all"] + ["all"]:
    covered, total = folders[key]
    print(f"| {key} | {total} | {covered} | {100 * covered / total:.1f} % |")
if badge:
    share = f"{100 * folders['all'][0] / folders['all'][1]:.0f} %"
    with open(badge, "w") as out:
        out.write(f"""<svg xmlns="http://www.w3.org/2000/svg" width="150" height="20" role="img" aria-label="line coverage: {share}">
<rect width="100" height="20" fill="#555"/><rect x="100" width="50" height="20" fill="{'#2a7d2a' if 100 * folders['all'][0] >= 90 * folders['all'][1] else '#a8541c'}"/>
<g fill="#fff" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" text-anchor="middle">
<text x="50" y="14">line coverage</text><text x="125" y="14">{share}</text></g></svg>
""")
print(f"uncovered lines: {os.path.join(build, 'uncovered.txt')}")
END
exit $tests
