#!/usr/bin/env python3
"""Fuzzes the readers of files for a given time each, and prints a table of what ran.

    bash tests/configuration.sh fuzz                                   # builds the programs, and runs a minute of each
    tests/attacks/fuzz.py --build build/tests-fuzz --seconds 100       # goes on from what that found

Edges are those of the program's control flow that an input reached, as libFuzzer counts them: by the seeds in
tests/fuzz/corpus alone, and by all inputs in the end. An input that crashes, leaks, takes more than 10 seconds or 2 GiB ends
its reader's run, and is kept in BUILD/tests/fuzz.
"""
import argparse
import pathlib
import re
import subprocess
import sys

SEEDS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus"


def fuzz(program, folder, seconds, seed):
    """A row: executions, edges of the seeds, edges in the end, what was found."""
    reader = program.name.removeprefix("fuzz_")
    found = folder / "corpus" / reader
    found.mkdir(parents=True, exist_ok=True)
    common = [program, "-timeout=10", "-rss_limit_mb=2048", "-max_len=8192", f"-artifact_prefix={folder / reader}-"]

    def run(*arguments):
        ended = subprocess.run([str(a) for a in [*common, *arguments]], capture_output=True, text=True, errors="replace")
        edges = [int(n) for n in re.findall(r"\bcov: (\d+)", ended.stderr)]
        return ended, edges[-1] if edges else 0

    _, seeds = run("-runs=0", SEEDS / reader)
    ended, edges = run(f"-max_total_time={seconds}", "-print_final_stats=1", f"-seed={seed}", found, SEEDS / reader)
    executed = re.search(r"stat::number_of_executed_units:\s+(\d+)", ended.stderr)
    if ended.returncode != 0 or not executed:
        print(ended.stderr[-3000:], file=sys.stderr)
        return int(executed[1]) if executed else 0, seeds, edges, f"exit code {ended.returncode}"
    return int(executed[1]), seeds, edges, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the build with EIGENFORMER_TEST_FUZZ")
    parser.add_argument("--seconds", type=int, default=100, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="these readers")
    args = parser.parse_args()
    programs = sorted(p for p in (args.build / "bin").glob("fuzz_*") if not args.only or p.name.removeprefix("fuzz_") in args.only)
    if not programs:
        sys.exit(f"fuzz.py: {args.build / 'bin'} has no fuzz programs; bash tests/configuration.sh fuzz builds them")
    print("| reader | executions | edges by the seeds | edges in the end | found |\n|---|---:|---:|---:|---|", flush=True)
    total, failed = 0, False
    for program in programs:
        executed, seeds, edges, problem = fuzz(program, args.build / "tests" / "fuzz", args.seconds, args.seed)
        total += executed
        failed = failed or bool(problem)
        print(f"| {program.name.removeprefix('fuzz_')} | {executed:,} | {seeds:,} | {edges:,} | {problem or 'nothing'} |", flush=True)
    print(f"| all | {total:,} | | | |")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
