#!/usr/bin/env python3
"""Flips bits and cuts ends in the files of a model folder and of a training state, and runs the translator on each.

A tiny model is trained first. Of each file of its folder, and of the state, copies are made with one bit flipped at random
places (--flips each) or the end cut off (--truncations each), from a fixed seed. The model goes to `translator translate` and,
where the tool has it, `inspect --verify`; the state to `translator train --resume`, for one more epoch. Counted are

  signals, hangs   the program ended by a signal, or took longer than --timeout: none may
  refused          it ended with an exit code and a message
  equal            it ended well, with the translations (of the state: the model) of the undamaged file
  different        it ended well, with others; of a model, each must be found by `inspect --verify`; of a state, there are none

Run by hand:  tests/attacks/byte_flips.py --tool build/release/bin/translator --jobs 2
Exit code 1 when anything above is not so.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile

STATE = "training/last.safetensors"


def corpus():
    """60 sentences with one right translation each."""
    who = [("I", "Ich", 0), ("You", "Du", 1), ("We", "Wir", 2), ("They", "Sie", 2)]
    verbs = [("see", ("sehe", "siehst", "sehen")), ("look for", ("suche", "suchst", "suchen")), ("paint", ("male", "malst", "malen"))]
    what = [("dog", "den Hund"), ("cat", "die Katze"), ("house", "das Haus"), ("bread", "das Brot"), ("lamp", "die Lampe")]
    pairs = [(f"{w[0]} {v[0]} the {o[0]}.", f"{w[1]} {v[1][w[2]]} {o[1]}.") for w in who for v in verbs for o in what]
    return "".join(p[0] + "\n" for p in pairs), "".join(p[1] + "\n" for p in pairs)


def limit():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def run(args, arguments, text=""):
    """(exit code, output); below 0: the signal; None: it took too long."""
    try:
        done = subprocess.run([args.tool, *arguments], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=args.timeout, preexec_fn=limit)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return None, b""


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names)


def damaged(data, kind, rng):
    if kind == "truncation":
        return data[:rng.randrange(len(data))]
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:]


class Attack:
    def __init__(self, args, scratch):
        self.args = args
        self.model = os.path.join(scratch, "model")
        english, german = corpus()
        for name, text in (("train.en", english), ("train.de", german)):
            with open(os.path.join(scratch, name), "w") as file:
                file.write(text)
        options = ["--source", os.path.join(scratch, "train.en"), "--target", os.path.join(scratch, "train.de"), "--tokenizer",
                   args.tokenizer, "--d-model", "16", "--heads", "2", "--layers", "1", "--ff", "32", "--batch-tokens", "120",
                   "--learning-rate", "0.01", "--warmup", "20", "--threads", "1"]
        if args.tokenizer == "subword":
            options += ["--vocab-size", "60"]
        code, output = run(args, ["train", "--model", self.model, *options, "--epochs", "4"])
        if code != 0:
            sys.exit(f"byte_flips.py: the training ended with {code}: {output.decode()}")
        self.source = english
        self.scratch = scratch
        self.verifies = b"--verify" in run(args, ["inspect", "--help"])[1]
        self.expected = {"model": self.translate(self.model)}
        again = self.copy("expected")
        self.expected["state"] = self.resume(again)
        for what, (code, _) in self.expected.items():
            if code != 0:
                sys.exit(f"byte_flips.py: the undamaged {what} ended with {code}")

    def copy(self, name):
        folder = os.path.join(self.scratch, name)
        shutil.copytree(self.model, folder)
        return folder

    def translate(self, folder):
        return run(self.args, ["translate", "--model", folder, "--threads", "1"], self.source)

    def resume(self, folder):
        """The model after one more epoch, in place of what the program prints."""
        code, _ = run(self.args, ["train", "--resume", "--model", folder, "--epochs", "5"])
        if code != 0:
            return code, b""
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            return code, file.read()

    def one(self, case):
        number, name, kind, seed = case
        folder = self.copy(f"case-{number}")
        try:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                data = damaged(file.read(), kind, random.Random(seed))
            with open(path, "wb") as file:
                file.write(data)
            state = name == STATE
            verified = None
            if not state and self.verifies:
                verified = run(self.args, ["inspect", "--verify", "--model", folder])[0]
            code, output = (self.resume if state else self.translate)(folder)
            codes = [code] + ([verified] if not state and self.verifies else [])
            if None in codes:
                return "hangs"
            if min(codes) < 0:
                return "signals"
            if code != 0:
                result = "refused"
            else:
                result = "equal" if output == self.expected["state" if state else "model"][1] else "different"
            if not state and self.verifies and verified == 0:
                return "not found by --verify"
            return result
        finally:
            shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the program translator")
    parser.add_argument("--flips", type=int, default=1000, help="of each file (1000)")
    parser.add_argument("--truncations", type=int, default=200, help="of each file (200)")
    parser.add_argument("--tokenizer", default="subword", choices=["subword", "word", "char"], help="of the model (subword)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60, help="seconds that a run may take (60)")
    args = parser.parse_args()
    args.tool = os.path.abspath(args.tool)
    kinds = ["refused", "equal", "different", "not found by --verify", "signals", "hangs"]
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        attack = Attack(args, scratch)
        if not attack.verifies:
            print("byte_flips.py: this translator has no inspect --verify", file=sys.stderr)
        print("| file | damage | cases | " + " | ".join(kinds) + " |")
        print("|---|---|---:|" + "---:|" * len(kinds))
        number = 0
        for name in files_of(attack.model):
            if name.startswith("training/") and name != STATE:
                continue  # logs
            for kind, count in (("flip", args.flips), ("truncation", args.truncations)):
                cases = [(number + i, name, kind, f"{args.seed} {name} {kind} {i}") for i in range(count)]
                number += count
                with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
                    counts = collections.Counter(pool.map(attack.one, cases))
                print(f"| {name} | {kind} | {count} | " + " | ".join(str(counts[k]) for k in kinds) + " |", flush=True)
                failed |= any(counts[k] for k in ("signals", "hangs", "not found by --verify"))
                failed |= bool(counts["different"]) and (name == STATE or not attack.verifies)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
