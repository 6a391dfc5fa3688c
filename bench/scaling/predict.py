#!/usr/bin/env python3
"""Predicts the time of an update by many ranks, and compares with what bench/scaling/measure.sh measured.

    python3 bench/scaling/predict.py measured.jsonl

Prints three tables in Markdown: efficiency here, predictions beside emulated networks, and 8 to 64 nodes on 10 and 100 Gbit/s.

The model. A micro-batch takes `forward` and `backward` seconds; bucket i of n_i bytes is complete at the time ready_i of backward.
The thread that communicates takes buckets one after the other, each when it is complete:
  sums    latency + n_i (N - 1) / N / bandwidth     to the ranks that add it up
  all     the same again, once an update            to all ranks
  local   n_i * local                               packing, adding, unpacking
and backward of the next micro-batch waits for it. Then come the norm and the optimizer, and `small` messages of a latency each.
Where ranks have no core free for communication, its local part lengthens the computation by as much.
"""

import argparse
import json


def buckets_of(row):
    """[(seconds after the forward pass at which it was sent, bytes of the bucket)] of a run with overlap and one round."""
    share = (row["ranks"] - 1) / row["ranks"]
    return [(when / 1e3, sent / share) for when, sent in row["large"][::2] if sent > 0]


class Machine:
    """Constants of a run without network: one micro-batch a rank."""

    def __init__(self, overlapped, serial, latency=0.0):
        self.ranks = overlapped["ranks"]
        self.forward = serial["forward_ms"] / 1e3
        self.optimizer = serial["optimizer_ms"] / 1e3
        self.bytes = serial["parameters"] * 4
        self.exchanges = serial["exchanges"]
        buckets = buckets_of(overlapped)
        self.small = max(0, self.exchanges - 2 * len(buckets))
        # Serial communication begins when backward has ended.
        self.backward = min((when for when, _ in serial["large"]), default=0) / 1e3
        end = buckets[-1][0] if buckets else 1
        self.buckets = [(min(1.0, when / max(end, self.backward)), size) for when, size in buckets]
        rest = serial["update_ms"] / 1e3 - self.forward - self.backward - self.optimizer
        self.local = max(0.0, rest) / self.bytes
        self.free_core = False


def update_seconds(machine, ranks, latency, gbit, rounds=1, width=1.0, overlap=True, local_first=False):
    """Seconds of an update of `rounds` micro-batches a rank. width: bytes sent for a byte of gradients."""
    rate = gbit * 1e9 / 8 if gbit else float("inf")

    def cost(size, last):
        one = latency + size * width * (ranks - 1) / ranks / rate
        return one * (2 if last else 1) + size * machine.local

    now, free = 0.0, 0.0
    for a in range(rounds):
        last = a + 1 == rounds
        now += machine.forward
        if local_first and not last:
            now += machine.backward
            continue
        start = max(now, free)
        stretch = 0.0 if machine.free_core or not overlap else machine.local * machine.bytes
        backward = machine.backward + stretch
        free = start
        for ready, size in machine.buckets:
            begin = start + (ready * backward if overlap else backward)
            local = size * machine.local if not machine.free_core and overlap else 0.0
            free = max(free, begin) + cost(size, last) - local
        now = start + backward
        if not overlap:
            now = max(now, free)
    return max(now, free) + machine.small * latency + machine.optimizer


def find(rows, **wanted):
    defaults = {"reduction": "fixed-order", "bf16": False, "shard": False, "overlap": True, "latency_us": 0, "gbit": 0}
    defaults.update(wanted)
    for row in rows:
        if all(row[k] == v for k, v in defaults.items()):
            return row
    return None


def efficiency(rows):
    print("| ranks | update of 4 batches, ms | times one rank's speed | MB sent a rank | exchanges |\n|---:|---:|---:|---:|---:|")
    base = find(rows, ranks=1, accumulate=4)
    for ranks in (1, 2, 4):
        row = find(rows, ranks=ranks, accumulate=4)
        print(f"| {ranks} | {row['update_ms']:.0f} | {base['update_ms'] / row['update_ms']:.2f} | {row['bytes'] / 1e6:.1f} | "
              f"{row['exchanges']} |")
    print("\n| ranks, one batch each | update, ms | in exchanges, ms | MB sent a rank |\n|---|---:|---:|---:|")
    for ranks in (2, 4):
        for name, options in (("overlapped", {}), ("after backward", {"overlap": False}), ("bf16", {"bf16": True}),
                              ("sharded", {"shard": True}), ("native", {"reduction": "native"})):
            row = find(rows, ranks=ranks, accumulate=ranks, **options)
            sent = "not known" if name == "native" else f"{row['bytes'] / 1e6:.1f}"  # MPI's own sum is not counted
            print(f"| {ranks}, {name} | {row['update_ms']:.0f} | {row['communication_ms']:.0f} | {sent} |")


def machine_of(rows, ranks):
    return Machine(find(rows, ranks=ranks, accumulate=ranks), find(rows, ranks=ranks, accumulate=ranks, overlap=False))


def compare(rows):
    print("\n| ranks | latency, us | Gbit/s | | measured, ms | predicted, ms | off |\n|---:|---:|---:|---|---:|---:|---:|")
    worst = 0.0
    for row in rows:
        if not row["gbit"]:
            continue
        ranks = row["ranks"]
        predicted = 1e3 * update_seconds(machine_of(rows, ranks), ranks, row["latency_us"] / 1e6, row["gbit"],
                                         rounds=row["accumulate"] // ranks, width=0.5 if row["bf16"] else 1.0,
                                         overlap=row["overlap"], local_first=row["reduction"] != "fixed-order")
        off = predicted / row["update_ms"] - 1
        worst = max(worst, abs(off))
        what = ", ".join(name for name, there in (("after backward", not row["overlap"]), ("bf16", row["bf16"]),
                                                  (f"{row['accumulate'] // ranks} batches a rank", row["accumulate"] > ranks),
                                                  (row["reduction"], row["reduction"] != "fixed-order")) if there)
        print(f"| {ranks} | {row['latency_us']:.0f} | {row['gbit']:.0f} | {what} | {row['update_ms']:.0f} | {predicted:.0f} | "
              f"{100 * off:+.0f} % |")
    print(f"\nThe largest difference is {100 * worst:.0f} %.")


def predict(rows, latency_us):
    alone = find(rows, ranks=1, accumulate=1)
    machine = machine_of(rows, 2)
    # One rank a node, with a core free for communication: computation as by one rank.
    scale = (alone["update_ms"] / 1e3 - alone["optimizer_ms"] / 1e3) / (machine.forward + machine.backward)
    machine.forward *= scale
    machine.backward *= scale
    machine.optimizer = alone["optimizer_ms"] / 1e3
    machine.free_core = True
    base = alone["update_ms"] / 1e3
    print(f"\n{machine.bytes / 1e6:.0f} MB of gradients, {alone['tokens']} tokens a batch, {latency_us} us latency:\n")
    print("| nodes | Gbit/s | one batch a node, ms | efficiency | in bf16 | 8 batches a node, local-first |\n|---:|---:|---:|---:|---:|---:|")
    for gbit in (10, 100):
        for nodes in (8, 16, 32, 64):
            seconds = update_seconds(machine, nodes, latency_us / 1e6, gbit)
            bf16 = update_seconds(machine, nodes, latency_us / 1e6, gbit, width=0.5)
            many = update_seconds(machine, nodes, latency_us / 1e6, gbit, rounds=8, local_first=True)
            eight = 8 * (machine.forward + machine.backward) + machine.optimizer
            print(f"| {nodes} | {gbit} | {1e3 * seconds:.0f} | {100 * base / seconds:.0f} % | {100 * base / bf16:.0f} % | "
                  f"{100 * eight / many:.0f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured")
    parser.add_argument("--latency_us", type=float, default=50, help="of the networks of 8 to 64 nodes")
    arguments = parser.parse_args()
    with open(arguments.measured, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.startswith("{")]
    efficiency(rows)
    compare(rows)
    predict(rows, arguments.latency_us)


if __name__ == "__main__":
    main()
