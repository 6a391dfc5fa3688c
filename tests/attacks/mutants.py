#!/usr/bin/env python3
"""Mutation testing: makes small mistakes in the headers, one at a time, and sees whether the tests notice.

Rules (below, RULES) find the places in the files of AREAS; a fixed seed chooses as many in each area. A mutant is a copy
of the file with one change, in a folder that the compiler searches before include/. The tests that mirror the file
(tests/<folder>/test_<file>.cpp, and test_<file>_*.cpp; without one, all of the folder) are compiled with it and run:

  killed           a test fails, crashes or takes too long
  survived         all pass; either a test is missing, or the change makes no difference, which is then explained
  does not compile

Every test must pass without a mutant first. Tests are compiled with EIGENFORMER_COMPILED and EIGENFORMER_COMPILED_MODULES,
so that they instantiate all modules by themselves; of kernels, the headers of the folder that reach the mutated file are
compiled again and linked before the library, which so gives only what no mutant changes.

Results go to WORK/mutants.json after every mutant; a run with the same WORK goes on where the last one ended. An entry
may be given an "explanation" by hand, which later runs keep. Run by hand: a mutant takes about a minute of one core.

  tests/attacks/mutants.py --work /tmp/mutants --library build/tests/libeigenformer_compiled.a --count 200
  tests/attacks/mutants.py --work /tmp/mutants --table     prints the Markdown table of docs/testing.md
"""
import argparse
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join(ROOT, "include")
HOME = os.path.join(INCLUDE, "eigenformer")

# What runs on an x86-64 CPU without AMX; files of the other paths would only survive.
AREAS = {
    "kernels": ["kernels/attention/*.hpp", "kernels/elementwise/*.hpp",
                "kernels/normalization/*.hpp", "kernels/reduction/*.hpp", "kernels/sequence/*.hpp",
                "kernels/gemm/gemm_driver.hpp", "kernels/gemm/gemm_kernels.hpp", "kernels/packed/gemm_packed.hpp",
                "kernels/packed/packed_weights.hpp"],
    "backward": ["autograd/ops/*/*.hpp", "autograd/linalg/*.hpp", "autograd/tape/gradients.hpp",
                 "autograd/tape/tape.hpp", "autograd/tape/context.hpp"],
    "masks": ["core/tensor/mask.hpp", "core/tensor/layout.hpp", "core/tensor/shape.hpp", "core/tensor/view.hpp",
              "nn/attention/attention.hpp", "nn/stacks/pass.hpp", "nn/decoding/*.hpp"],
    "search": ["search/beams/*.hpp", "search/processors/*.hpp", "search/constraints/*.hpp",
               "search/decoding/*.hpp"],
    "readers": ["io/safetensors/*.hpp", "io/numpy/*.hpp", "io/marian/marian_file.hpp", "io/models/folder_*.hpp",
                "io/ctranslate2/ctranslate2_format.hpp", "data/text/utf8.hpp", "data/text/text_file.hpp",
                "data/text/base64.hpp", "data/tokenizers/foreign_tokenizer.hpp",
                "data/corpus/shortlist.hpp"],
}


def negated(line, match):
    """`if (cond)` becomes `if (!(cond))`; a condition that declares a variable cannot be negated."""
    if re.match(r"(const )?auto\b", line[match.end():]):
        return None
    depth, start = 0, match.end() - 1
    for at in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        if depth == 0:
            return line[:start] + "(!" + line[start:at + 1] + ")" + line[at + 1:]
    return None  # the condition goes on in the next line


def removed(line, match):
    """A statement of one line becomes an empty one."""
    whole = line.count("(") == line.count(")")
    return match.group(1) + ";" if whole else None


def replaced(text):
    return lambda line, match: line[:match.start()] + match.expand(text) + line[match.end():]


# name, pattern in a line whose strings are blanked, and what makes the new line of the old one and the match.
RULES = [
    ("+ to -", r" \+ ", replaced(" - ")),
    ("- to +", r"(?<=[\w)\]]) - ", replaced(" + ")),
    ("* to +", r"(?<=[\w)\]]) \* (?=[\w(])", replaced(" + ")),
    ("+= to -=", r" \+= ", replaced(" -= ")),
    ("+= to =", r" \+= ", replaced(" = ")),
    ("< to <=", r"(?<=[\w)\]]) < ", replaced(" <= ")),
    ("<= to <", r" <= ", replaced(" < ")),
    ("> to >=", r"(?<=[\w)\]]) > (?=[\w(])", replaced(" >= ")),
    (">= to >", r" >= ", replaced(" > ")),
    ("== to !=", r" == ", replaced(" != ")),
    ("&& to ||", r" && ", replaced(" || ")),
    ("|| to &&", r" \|\| ", replaced(" && ")),
    ("dropped term", r" [+-] [\w.\[\]]+(?:\([\w., ]*\))?(?=[;,)])", replaced("")),
    ("bound one less", r"(?<=; )(\w+) < ([\w.]+)(?=; (?:\+\+)?\w)", replaced(r"\1 < \2 - 1")),
    ("bound one more", r"(?<=; )(\w+) < ([\w.]+)(?=; (?:\+\+)?\w)", replaced(r"\1 <= \2")),
    ("start one later", r"(?<== )0(?=; \w+ <)", replaced("1")),
    ("negated condition", r"\bif \(", negated),
    ("max to min", r"std::max\b", replaced("std::min")),
    ("min to max", r"std::min\b", replaced("std::max")),
    ("removed mask", r"^(\s*)if \((.*(?:mask|causal|allowed|visible|hidden|padding).*)\)(?= )", replaced(r"\1if (false && (\2))")),
    ("removed statement", r"^(\s*)[\w.\->]+(?:\[[^\]]*\])?(?: [-+*/|&]?= .*|\(.*\));$", removed),
    ("continue to break", r"\bcontinue;", replaced("break;")),
    ("no return of an early exit", r"^(\s*if \(.*\)) return;$", replaced(r"\1 {}")),
]
# Lines that a mistake cannot be in, or where it would only change a message.
IGNORED = re.compile(r"^\s*(//|#|\*|using |template |static_assert|throw |return \"|namespace |public:|private:|requires|concept)"
                     r"|Error\(|operator|EIGENFORMER_|if constexpr|std::cerr|to_string|noexcept\(|refuse\(|fail\(")


def blanked(line):
    """The line with its strings and comment replaced, by as many characters."""
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: '"' + "_" * (len(m.group()) - 2) + '"', line)
    return re.sub(r"//.*$", lambda m: " " * len(m.group()), line)


def candidates(path):
    """All mutants of a file."""
    with open(os.path.join(HOME, path)) as file:
        lines = file.read().split("\n")
    found, seen = [], collections.Counter()
    for number, line in enumerate(lines, 1):
        plain = blanked(line)
        if IGNORED.search(plain) or not plain.strip():
            continue
        seen[line] += 1
        for name, pattern, change in RULES:
            for match in re.finditer(pattern, plain):
                # The positions are those of the blanked line; what stands between is taken from the line itself.
                original = re.compile(pattern).match(line, match.start()) if "_" * 3 in plain else match
                new = change(line, original) if original else None
                if new is None or new == line:
                    continue
                # Not the number of the line: a result stays valid while other lines of the file change.
                key = f"{path}:{seen[line]}:{name}:{match.start()}:{line}"
                found.append({"id": hashlib.sha1(key.encode()).hexdigest()[:12], "file": path, "line": number, "rule": name,
                              "old": line.strip(), "new": new.strip(), "text": new})
    return found


def chosen(args, results):
    """The mutants that `results` lacks: as many of each area, spread over its files, by the seed alone."""
    areas = {}
    for area, patterns in AREAS.items():
        files = sorted({os.path.relpath(f, HOME) for p in patterns for f in glob.glob(os.path.join(HOME, p))})
        areas[area] = [f for f in files if f.startswith(args.only) and not re.search(r"neon|amx|bf16", f)]
    areas = {area: files for area, files in areas.items() if files}
    if not areas:
        sys.exit(f"mutants.py: no file of AREAS begins with '{args.only}'")
    done = {r["id"] for r in results}
    out = []
    for area, files in areas.items():
        # By hashes and not by a generator's draws, so that a changed file does not change the choice in the others.
        order = lambda text: hashlib.sha1(f"{args.seed} {text}".encode()).digest()
        pools = {f: sorted((m for m in candidates(f) if m["id"] not in done), key=lambda m: order(m["id"]), reverse=True)
                 for f in files}
        judged = collections.Counter(r["file"] for r in results if r["area"] == area)
        lines = {(r["file"], r["old"]) for r in results}
        wanted = -(-args.count // len(areas)) - sum(judged.values())
        while wanted > 0 and any(pools.values()):
            file = min((f for f in files if pools[f]), key=lambda f: (judged[f], order(f)))
            mutant = pools[file].pop()
            if (file, mutant["old"]) not in lines:
                lines.add((file, mutant["old"]))
                judged[file] += 1
                wanted -= 1
                out.append({**mutant, "area": area})
    return out


def tests_of(path):
    """The tests that cover a header, the mirrored ones first."""
    folder, name = os.path.split(path)
    name = re.sub(r"(-inl)?\.hpp$", "", name)
    while folder:
        room = os.path.join(ROOT, "tests", folder)
        mirrored = glob.glob(os.path.join(room, f"test_{name}.cpp")) + glob.glob(os.path.join(room, f"test_{name}_*.cpp"))
        if mirrored:
            return sorted(mirrored)
        if every := glob.glob(os.path.join(room, "test_*.cpp")):
            return sorted(every)
        folder = os.path.dirname(folder)
    return []


def includes_of(path, seen):
    if path in seen:
        return seen
    seen.add(path)
    try:
        with open(os.path.join(INCLUDE, path)) as file:
            for name in re.findall(r'#include "(eigenformer/[^"]+)"', file.read()):
                includes_of(name, seen)
    except FileNotFoundError:
        pass
    return seen


def kernels_of(path):
    """The headers of its folder with kernels that reach it; they are what the library would hold."""
    if not path.startswith("kernels/"):
        return []
    room = "/".join(path.split("/")[:2])
    return [f for f in sorted(glob.glob(os.path.join(HOME, room, "*.hpp")))
            if "\n#ifndef EIGENFORMER_COMPILED\n" in open(f, encoding="utf-8").read()
            and "eigenformer/" + path in includes_of(os.path.relpath(f, INCLUDE), set())]


def limit():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


class Bench:
    def __init__(self, args):
        self.args = args
        self.flags = ["-std=c++20", "-g0", "-w", "-DEIGEN_MPL2_ONLY", "-isystem", args.eigen, "-I" + os.path.join(ROOT, "tests"),
                      "-I" + os.path.join(ROOT, "tests", "support"), "-I" + ROOT, f'-DEIGENFORMER_FIXTURES="{ROOT}/tests/fixtures"', '-DEIGENFORMER_PROGRAMS="/nowhere"']
        if args.sanitize:
            self.flags += ["-fsanitize=address"]
        self.flags += [f"-DEIGENFORMER_WITH_{name}=1" for name in args.libraries]
        self.links = [link for name in args.libraries for link in
                      {"SENTENCEPIECE": ["-lsentencepiece_train", "-lsentencepiece"], "ICU": ["-licuuc"], "ZLIB": ["-lz"],
                       "ZSTD": ["-lzstd"]}[name]] + ["-pthread"]
        self.baselines = {}
        self.lock = threading.Lock()
        self.common = []
        for name in ("main", "folders"):
            out = os.path.join(args.work, name + ".o")
            self.compile(["-O0", "-I" + INCLUDE, "-c", os.path.join(ROOT, "tests", "support", name + ".cpp"), "-o", out], check=True)
            self.common.append(out)

    def compile(self, arguments, check=False):
        done = subprocess.run([self.args.compiler, *self.flags, *arguments], capture_output=True, text=True)
        if check and done.returncode:
            sys.exit(done.stderr)
        return done.returncode == 0

    def outcome(self, path, text, folder):
        """(result, test) of the tests of `path` with its text replaced; None: as it is."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        first = []
        if text is not None:
            copy = os.path.join(folder, "eigenformer", path)
            os.makedirs(os.path.dirname(copy))
            with open(copy, "w") as file:
                file.write(text)
            first = ["-I" + folder]
        kernels, headers = [], kernels_of(path)
        if headers:
            source, kernels = os.path.join(folder, "kernels.cpp"), [os.path.join(folder, "kernels.o")]
            with open(source, "w") as file:
                file.write("#define EIGENFORMER_COMPILED_BUILD\n#define EIGENFORMER_INSTANTIATE\n")
                file.writelines(f'#include "{os.path.relpath(header, INCLUDE)}"\n' for header in headers)
            if not self.compile([*first, "-O1", "-I" + INCLUDE, "-c", source, "-o", *kernels]):
                return "does not compile", ""
        for test in tests_of(path):
            program = os.path.join(folder, "test")
            objects = [os.path.join(folder, "test.o"), *self.common, *kernels]
            if not self.compile([*first, "-O0", "-I" + INCLUDE, "-DEIGENFORMER_COMPILED", "-DEIGENFORMER_COMPILED_MODULES",
                                 "-c", test, "-o", objects[0]]):
                return "does not compile", os.path.relpath(test, ROOT)
            # The first definition counts: the mutant's, before those of the library.
            if not self.compile([*objects, self.args.library, *self.links, "-Wl,-z,muldefs", "-o", program]):
                return "does not link", os.path.relpath(test, ROOT)
            try:
                ran = subprocess.run([program, "--test-suite-exclude=long"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, timeout=self.args.timeout,
                                     preexec_fn=None if self.args.sanitize else limit)
                if ran.returncode:
                    return "killed", os.path.relpath(test, ROOT)
            except subprocess.TimeoutExpired:
                return "killed", os.path.relpath(test, ROOT) + " (time)"
        return "survived", ""

    def judge(self, mutant):
        path = mutant["file"]
        folder = os.path.join(self.args.work, mutant["id"])
        with self.lock:
            lock = self.baselines.setdefault((*tests_of(path), *kernels_of(path)), {"lock": threading.Lock()})
        with lock["lock"]:
            if "result" not in lock:
                lock["result"] = self.outcome(path, None, folder)
        if lock["result"][0] != "survived":
            shutil.rmtree(folder, ignore_errors=True)
            return "no baseline", " ".join(lock["result"])
        with open(os.path.join(HOME, path)) as file:
            lines = file.read().split("\n")
        lines[mutant["line"] - 1] = mutant["text"]
        result = self.outcome(path, "\n".join(lines), folder)
        shutil.rmtree(folder, ignore_errors=True)
        return result


def table(results):
    print("| area | mutants | killed | survived | explained | does not compile |")
    print("|---|---:|---:|---:|---:|---:|")
    for area in [*AREAS, "all"]:
        rows = [r for r in results if area in ("all", r["area"]) and r["result"] in ("killed", "survived", "does not compile")]
        count = lambda kind: sum(r["result"] == kind for r in rows)
        explained = sum(r["result"] == "survived" and bool(r.get("explanation")) for r in rows)
        if rows:
            print(f"| {area} | {len(rows)} | {count('killed')} | {count('survived')} | {explained} | {count('does not compile')} |")
    others = [r for r in results if r["result"] in ("no baseline", "does not link")]
    if others:
        print(f"\n{len(others)} not judged, because the tests of the unchanged file fail or do not link:",
              ", ".join(sorted({r["file"] for r in others})))
    survivors = [r for r in results if r["result"] == "survived"]
    if survivors:
        print("\n| survivor | rule | line | explanation |\n|---|---|---|---|")
    for r in survivors:
        line = r["new"].replace("|", "\\|")
        print(f"| {r['file']}:{r['line']} | {r['rule'].replace('|', chr(92) + '|')} | `{line}` | {r.get('explanation', '')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder of results and temporary files")
    parser.add_argument("--library", help="eigenformer::compiled of the unchanged headers, built with the same compiler")
    parser.add_argument("--count", type=int, default=200, help="mutants to make (200)")
    parser.add_argument("--only", default="", metavar="FOLDER", help="only files whose path below include/eigenformer begins so")
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutants (1)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (1)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a test may take (120)")
    parser.add_argument("--sanitize", action="store_true", help="with the address sanitizer: reads past an array's end count as killed")
    parser.add_argument("--compiler", default="clang++")
    parser.add_argument("--eigen", default="/usr/include/eigen3", help="folder that holds Eigen/Core")
    parser.add_argument("--libraries", nargs="*", default=["SENTENCEPIECE", "ICU", "ZLIB", "ZSTD"],
                        help="optional libraries the tests are compiled with")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument("--table", action="store_true", help="print the table of the results so far and stop")
    args = parser.parse_args()
    record = os.path.join(args.work, "mutants.json")
    results = []
    if os.path.exists(record):
        with open(record) as file:
            results = json.load(file)
    if args.table:
        return table(results)
    todo = chosen(args, results)
    if args.list:
        for m in todo:
            print(f"{m['area']:9} {m['file']}:{m['line']} {m['rule']}\n          {m['old']}\n          {m['new']}")
        return None
    if not args.library:
        parser.error("--library is required: cmake --build build/release --target eigenformer_compiled makes it")
    os.makedirs(args.work, exist_ok=True)
    bench = Bench(args)
    todo.sort(key=lambda m: m["file"])
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for mutant, (result, test) in zip(todo, pool.map(bench.judge, todo)):
            entry = {k: v for k, v in mutant.items() if k != "text"} | {"result": result, "test": test}
            results.append(entry)
            with open(record + ".new", "w") as file:
                json.dump(results, file, indent=1)
            os.replace(record + ".new", record)
            print(f"{len(results):4} {result:16} {entry['file']}:{entry['line']} {entry['rule']}: {entry['new']}", flush=True)
    table(results)
    return None


if __name__ == "__main__":
    main()
