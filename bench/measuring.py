"""What bench/compare, bench/curves and bench/page share: running programs, naming the machine, files of results."""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"


class Failure(Exception):
    """A program that could not be run, with what it said."""


def run(command, environment=None, timeout=3600):
    """The standard output of a command. `environment` is added to this process's own."""
    command = [str(c) for c in command]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                env=dict(os.environ, **(environment or {})))
    except FileNotFoundError:
        raise Failure(f"there is no {command[0]}; build it, or name the build folder with --build") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)} took more than {timeout} s") from None
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)} failed:\n{(result.stderr or result.stdout)[-2000:]}")
    return result.stdout


def run_bench(program, flags, environment=None):
    """The benchmarks of one run of a Google Benchmark program, as dictionaries."""
    out = run([program, *flags, "--benchmark_format=json"], environment)
    return json.loads(out[out.index("{"):])["benchmarks"]


def cpu_name():
    """The CPU as the system names it, with family and model where that name is vague, and its cores."""
    name, details = platform.processor() or platform.machine(), ""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        fields = {m[1].strip(): m[2].strip() for m in re.finditer(r"^([^:\n]+):(.*)$", text.split("\n\n")[0], re.M)}
        name = fields.get("model name", name)
        if "cpu family" in fields and "model" in fields:
            details = f" (family {fields['cpu family']}, model {fields['model']})"
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}{details}, {cores} core{'s' if cores != 1 else ''}"


def commit():
    """The commit that was measured, with "+" when files that are compiled differ from it; "" outside git."""
    try:
        name = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        changes = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--", "include", "bench", "cmake", "examples",
                                  "CMakeLists.txt", "CMakePresets.json"], capture_output=True, text=True)
    except OSError:
        return ""
    return name.stdout.strip() + ("+" if changes.stdout.strip() else "") if name.returncode == 0 else ""


def today():
    return datetime.date.today().isoformat()


def write(path, text):
    """Writes a whole file or nothing."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as f:
        f.write(text)
    os.chmod(f.name, 0o644)
    os.replace(f.name, path)


def write_json(path, value):
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def number(x, digits=3):
    """A number for a reader: about three digits, thousands apart."""
    if x is None:
        return ""
    if abs(x) >= 10 ** (digits - 1):
        return f"{x:,.0f}"
    return f"{x:.{digits}g}"


def markdown_table(header, rows):
    """A Markdown table; columns after the first are flushed right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(r) + " |" for r in rows]
    return "\n".join(lines)


COMPARE_HEADER = ["row", "ours", "peer", "unit", "ratio", "min to max", "goal", "memory MiB", "peer's MiB", "memory ratio",
                  "goal", "peer's mode"]
PAGE_HEADER = ["work", "ours", "peer", "unit", "ratio", "min to max", "memory MiB", "peer's MiB", "peer", "row"]


def compare_cells(name, r):
    """One row of bench/compare as text, in the order of COMPARE_HEADER."""
    def goal(value, limit, met):
        return "" if limit is None else f"{limit:g} {'met' if met(value, limit) else 'missed'}"

    memory = r.get("memory") or {}
    return [name, number(r["ours"]), number(r.get("peer")), r["unit"], f"{r['ratio']:.2f}",
            f"{r['ratio_min']:.2f} to {r['ratio_max']:.2f}",
            goal(r["ratio"], r.get("goal"), lambda a, b: a >= b), number(memory.get("ours")),
            number(memory.get("peer")), f"{memory['ratio']:.2f}" if memory else "",
            goal(memory.get("ratio"), memory.get("goal"), lambda a, b: a <= b), r.get("peer_mode", "")]


def row_words(name):
    """What a row of bench/compare measures, and the peer's name, for a reader who does not know the names of rows."""
    parts = name.split("-")
    size = next((p for p in parts if p in ("d64", "d256", "d512", "opus")), "d256")
    model = {"d64": "width 64, 2 + 2 layers", "d256": "width 256, 3 + 3 layers", "d512": "width 512, 6 + 6 layers",
             "opus": "width 512, 6 + 6 layers, 58,000 entries"}[size]
    kind = next((p for p in parts if p in ("bf16", "int8")), "float32")
    search = [f"beam {p[4:]}" for p in parts if p.startswith("beam")]
    batch = [f"batch {p[1:]}" for p in parts if re.fullmatch(r"b\d+", p)]
    batch = batch or (["batch 32"] if search else [])
    threads = f"{parts[-1]} thread{'s' if parts[-1] != '1' else ''}"
    words = {"train": ("train", model, kind), "own": ("train in bf16", model), "decode": ("decode", model, kind, *search, *batch),
             "hf": ("decode", model, kind, *search, *batch), "latency": ("one sentence", model, kind, *search),
             "gemm": ("matrix products", kind, *(["1, 4 and 32 rows, packed weights"] if "packed" in parts else []), threads), "step": ("arithmetic of a training step", model),
             "threads": ("gain of all threads in training", model),
             "portable": ("portable build", {"train": "train", "decode": "decode, beam 4, batch 32"}.get(parts[-1], ""), model)}
    peers = {"train": "PyTorch", "decode": "CTranslate2", "latency": "CTranslate2", "hf": "transformers"}
    if parts[0] not in words:
        raise Failure(f"row_words() has no words for the row {name}")
    return ", ".join(words[parts[0]]), peers.get(parts[0], "")


def page_cells(name, r):
    """One row of bench/compare as text, in the order of PAGE_HEADER."""
    words, peer = row_words(name)
    mode = r.get("peer_mode", "")
    memory = r.get("memory") or {}
    return [words, number(r["ours"]), number(r.get("peer")), r["unit"], f"{r['ratio']:.2f}", f"{r['ratio_min']:.2f} to {r['ratio_max']:.2f}",
            number(memory.get("ours")), number(memory.get("peer")), ", ".join(dict.fromkeys(filter(None, (peer, mode)))),
            name]


def compare_markdown(results):
    """The results of bench/compare (its --json) as tables for readers, one for each day of measurement, with what they need to be believed."""
    days = {}
    for name, r in results["rows"].items():
        days.setdefault((r["date"], r["cpu"], r["threads"]), {})[name] = r
    return "\n\n".join(compare_table(*day, days[day]) for day in sorted(days, reverse=True))


def compare_table(date, cpu, threads, rows):
    text = [markdown_table(PAGE_HEADER, [page_cells(name, r) for name, r in rows.items()]), ""]
    by_rounds = {}
    for name, r in rows.items():
        by_rounds.setdefault(r["rounds"], []).append(name)
    *fewer, most = sorted(by_rounds)
    rounds = f"median of {most} rounds" + "".join(f", of {n} for {', '.join(by_rounds[n])}" for n in reversed(fewer))
    commits = ", ".join(sorted({r["commit"] for r in rows.values() if r["commit"]}))
    text.append(f"Measured on {cpu}, {date}" + (f", commit {commits}" if commits else "") + f"; {threads} thread{'s' if threads > 1 else ''}, {rounds}.")
    versions = sorted({v for r in rows.values() for v in r.get("versions", [])})
    if versions:
        text.append("Peers: " + ", ".join(versions) + ".")
    text += [f"{name}: {r['note']}." for name, r in rows.items() if r.get("note")]
    return "\n".join(text)
