"""Memory and time of self-attention in PyTorch, forward and backward, at one length: the peer of bench_attention_memory.

One process a length, because the peak of a process only rises.  usage: attention_memory.py --length 4096
[--part attention|module --d 256 --heads 8 --threads 2 --repeats 3 --causal]
attention: scaled_dot_product_attention on given q, k, v; module: nn.MultiheadAttention with need_weights=False.
"""
import argparse, resource, time
import torch, torch.nn as nn, torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--length", type=int, default=4096)
p.add_argument("--part", choices=["attention", "module"], default="attention")
p.add_argument("--d", type=int, default=256)
p.add_argument("--heads", type=int, default=8)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--repeats", type=int, default=3)
p.add_argument("--causal", action="store_true")
a = p.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(0)


def resident_mib():
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return peak_mib()


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# What a first small pass loads and allocates once for all is not the attention's.
def prepare(length):
    if a.part == "attention":
        q, k, v = (torch.rand(1, a.heads, length, a.d // a.heads, requires_grad=True) for _ in range(3))
        dy = torch.rand(1, a.heads, length, a.d // a.heads)
        inputs = [q, k, v]
        return inputs, dy, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=a.causal)
    x = torch.rand(1, length, a.d, requires_grad=True)
    mask = nn.Transformer.generate_square_subsequent_mask(length) if a.causal else None
    inputs = [x, *module.parameters()]
    return inputs, torch.rand(1, length, a.d), lambda: module(x, x, x, need_weights=False, attn_mask=mask,
                                                              is_causal=a.causal)[0]


def passes(length, repeats):
    inputs, dy, f = prepare(length)
    forward = backward = float("inf")
    for _ in range(repeats):
        for t in inputs:
            t.grad = None
        t0 = time.perf_counter()
        y = f()
        t1 = time.perf_counter()
        y.backward(dy)
        forward, backward = min(forward, t1 - t0), min(backward, time.perf_counter() - t1)
    return forward, backward


module = nn.MultiheadAttention(a.d, a.heads, batch_first=True)
passes(16, 1)
before = resident_mib()
forward, backward = passes(a.length, a.repeats)
print(f"torch {torch.__version__} {a.part} length={a.length} d={a.d} heads={a.heads} threads={a.threads}: "
      f"forward {forward * 1e3:.2f} ms, backward {backward * 1e3:.2f} ms, grown {peak_mib() - before:.1f} MiB, "
      f"peak {peak_mib():.0f} MiB")
