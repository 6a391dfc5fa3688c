"""The table of ratios of a run of bench_tensor: the time of libtorch, of Eigen and of MLX, divided by ours.

bench_tensor --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true --benchmark_format=json > run.json
python3 table.py run.json

Each figure is the ratio of the medians of the processor times of all repetitions (with several threads, and beside MLX,
which computes on a thread of its own, of the real times); above 1 ours is faster. The two rows at the end are the
geometric mean and the worst.
"""

import collections
import json
import math
import statistics
import sys


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) == 2 else 2
    with open(sys.argv[1]) as file:
        run = json.load(file)
    alone = run["context"].get("threads", "1") == "1"
    times = {clock: collections.defaultdict(list) for clock in ("cpu_time", "real_time")}
    for row in run["benchmarks"]:
        if row["run_type"] == "iteration":
            library, operation, size = row["name"].split("/")[:3]
            for clock, values in times.items():
                values[library, operation, int(size)].append(row[clock])
    medians_by = {clock: {key: statistics.median(all_) for key, all_ in values.items()} for clock, values in times.items()}
    medians = medians_by["cpu_time"]
    sizes = sorted({size for _, operation, size in medians if operation == "add"})  # the columns; others are named in their row
    for other in sorted({library for library, _, _ in medians} - {"ours"}):
        medians = medians_by["cpu_time" if alone and other != "mlx" else "real_time"]
        ratios = {(operation, size): medians[other, operation, size] / ours
                  for (library, operation, size), ours in medians.items()
                  if library == "ours" and (other, operation, size) in medians}
        if not ratios:
            continue
        print(f"\n| {other}'s time over ours | " + " | ".join(f"{size:,}" for size in sizes) + " |")
        print("|---|" + "---:|" * len(sizes))
        for operation in dict.fromkeys(operation for operation, _ in ratios):
            own = {size: ratio for (name, size), ratio in ratios.items() if name == operation}
            if set(own) <= set(sizes):
                print(f"| {operation} | " + " | ".join(f"{own[s]:.2f}" if s in own else "" for s in sizes) + " |")
            else:
                text = "; ".join(f"{size}: {ratio:.2f}" if size else f"{ratio:.2f}" for size, ratio in sorted(own.items()))
                print(f"| {operation} | {text} |" + " |" * (len(sizes) - 1))
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
        worst = min(ratios, key=ratios.get)
        print(f"\ngeometric mean {mean:.2f}, worst {ratios[worst]:.2f} ({worst[0]}, {worst[1]:,})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
