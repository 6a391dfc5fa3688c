#!/usr/bin/env python3
"""Runs the tests of the library under valgrind's memcheck, and prints a table of what it reported.

    bash tests/run.sh
    tests/attacks/valgrind.py --build build/tests

Only entries of ctest that took at most --seconds, since memcheck makes them 20 to 100 times slower. Counted as reported: reads of
memory that is not the program's or was never written, and memory that is definitely lost. The kernels then run with AVX2, because
valgrind emulates a CPU without AVX-512. Full reports go to BUILD/valgrind.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import time

FOLDERS = ["core", "kernels", "autograd", "nn", "optim", "data", "io", "search", "metrics", "train", "translator"]
MEMCHECK = ["valgrind", "--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite",
            "--error-exitcode=99", "--num-callers=30", "--child-silent-after-fork=yes"]
# These limit the memory of a child process to less than valgrind itself needs in it.
LEFT_OUT = ["core/runtime/test_runtime", "core/runtime/test_thread_pool"]


def entries(build):
    """(name, command, seconds of the last run) of each test of a folder."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    with open(build / "Testing" / "Temporary" / "CTestCostData.txt") as file:
        rows = [line.rsplit(" ", 2) for line in file]
    seconds = {row[0]: float(row[2]) for row in rows if len(row) == 3}
    for test in json.loads(listed.stdout)["tests"]:
        name = test["name"]
        if "command" in test and name.split("/")[0] in FOLDERS and "/test_" in name:
            yield name, test["command"], seconds.get(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the build, whose tests ctest has run")
    parser.add_argument("--seconds", type=float, default=0.7, help="the longest tests to run, as timed by ctest (0.7)")
    parser.add_argument("--limit", type=int, default=1200, help="seconds that a test may take under valgrind (1200)")
    parser.add_argument("--only", default="", help="only entries that begin so")
    args = parser.parse_args()
    args.build = args.build.resolve()
    if not (args.build / "Testing" / "Temporary" / "CTestCostData.txt").exists():
        sys.exit(f"valgrind.py: ctest has not run in {args.build}; bash tests/run.sh runs it")
    reports = args.build / "valgrind"
    reports.mkdir(exist_ok=True)
    rows = {folder: collections.Counter() for folder in FOLDERS}
    failed = False
    for name, command, seconds in entries(args.build):
        row = rows[name.split("/")[0]]
        if not name.startswith(args.only):
            continue
        if name in LEFT_OUT or seconds is None or seconds > args.seconds:
            row["left out"] += 1
            continue
        report = reports / (name.replace("/", "_") + ".txt")
        start = time.monotonic()
        try:
            ended = subprocess.run([*MEMCHECK, f"--log-file={report}", *command], capture_output=True, text=True, errors="replace",
                                   timeout=args.limit, cwd=args.build)
        except subprocess.TimeoutExpired:
            row["left out"] += 1
            print(f"{name}: not finished after {args.limit} s", file=sys.stderr, flush=True)
            continue
        row["entries"] += 1
        row["seconds"] += time.monotonic() - start
        found = len(re.findall(r"^==\d+== (?:Invalid|Conditional|Use of|Syscall|Mismatched|Source and|[\d,]+ bytes)",
                               report.read_text(errors="replace"), re.M))
        row["reported"] += found
        # 77: an instruction set that valgrind's CPU lacks.
        if ended.returncode not in (0, 77, 99):
            row["failed"] += 1
        if found or ended.returncode not in (0, 77):
            failed = True
            print(f"{name}: {found} reports, exit code {ended.returncode}: {report}", file=sys.stderr, flush=True)
    print("| folder | entries | left out | minutes | tests that failed | reports |\n|---|---:|---:|---:|---:|---:|")
    for folder, row in rows.items():
        if row:
            print(f"| {folder} | {row['entries']} | {row['left out']} | {row['seconds'] / 60:.1f} | {row['failed']} | {row['reported']} |")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
