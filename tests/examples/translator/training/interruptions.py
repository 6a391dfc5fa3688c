#!/usr/bin/env python3
"""Trainings that are interrupted in many ways; run by hand, a few minutes.

    interruptions.py TRANSLATOR kills [COUNT]     kill -9 at random moments, in new folders and over another model
    interruptions.py TRANSLATOR readers [SECONDS] inspect and translate while a training saves as often as it can
    interruptions.py TRANSLATOR disk              a disk (tmpfs, so as root) that is full at each possible moment
"""
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

WHO = {"I": 0, "You": 1, "We": 2, "They": 3}
HE = ["Ich", "Du", "Wir", "Sie"]
VERBS = {"see": "sehe siehst sehen sehen", "paint": "male malst malen malen", "hear": "höre hörst hören hören"}
THINGS = {"the dog": "den Hund", "the cat": "die Katze", "the house": "das Haus", "the bread": "das Brot"}


class Place:
    """A folder with a corpus, and the commands on models in it."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        pairs = [(f"{w} {v} {t} .", f"{HE[k]} {forms.split()[k]} {de} .")
                 for w, k in WHO.items() for v, forms in VERBS.items() for t, de in THINGS.items()]
        for name, side in (("a.en", 0), ("a.de", 1)):
            with open(os.path.join(folder, name), "w") as file:
                file.writelines(pair[side] + "\n" for pair in pairs)

    def train(self, model, *more):
        corpus = [os.path.join(self.folder, name) for name in ("a.en", "a.de")]
        return [self.program, "train", "--source", corpus[0], "--target", corpus[1], "--valid-source", corpus[0],
                "--valid-target", corpus[1], "--model", model, "--tokenizer", "word", "--d-model", "32", "--heads", "2",
                "--layers", "1", "--ff", "64", "--batch-tokens", "100", "--learning-rate", "0.01", "--warmup", "20",
                "--threads", "1", "--average-last", "3", *more]

    def run(self, command, text=""):
        return subprocess.run(command, input=text, capture_output=True, text=True)

    def uses(self, model):
        """What inspect and translate say that is an error."""
        commands = [[self.program, "inspect", "--model", model],
                    [self.program, "translate", "--model", model, "--threads", "1", "--max-length", "3"]]
        return [done.stderr for done in (self.run(c, "I see the dog .\n") for c in commands) if done.returncode != 0]


def files(model):
    """Hashes of what a training left, and nothing else."""
    found = {}
    for base, _, names in os.walk(model):
        for name in names:
            path = os.path.join(base, name)
            if name not in ("training.jsonl", "lock"):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, model)] = hashlib.sha256(file.read()).hexdigest()
    return found


def kills(program, count):
    random.seed(14)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(program, folder)
        limits = ["--epochs", "60", "--validate-every", "15"]
        whole, old = os.path.join(folder, "whole"), os.path.join(folder, "old")
        begin = time.time()
        subprocess.run(place.train(whole, *limits), check=True, capture_output=True)
        lasts = time.time() - begin
        subprocess.run(place.train(old, "--max-steps", "5", "--seed", "9"), check=True, capture_output=True)
        expected, of_old = files(whole), files(old)
        usable = equal = several = anew = kept = 0
        for i in range(count):
            model = os.path.join(folder, f"m{i}")
            over = i % 3 == 2
            if over:
                shutil.copytree(old, model)
            times, ok = 0, True
            while True:
                if not os.path.exists(os.path.join(model, "options.json")) and not os.path.exists(
                        os.path.join(model, ".eigenformer-commit")):
                    command = place.train(model, *limits)
                    anew += times > 0
                elif over and files(model).get("model.safetensors") == of_old["model.safetensors"]:
                    kept += times > 0
                    command = place.train(model, *limits, "--overwrite")
                else:
                    command = [program, "train", "--resume", "--model", model]
                process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
                wait = random.uniform(0, lasts)
                if times == 0 or random.random() < 0.5:
                    try:
                        process.wait(wait)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        times += 1
                        several += times == 2
                _, errors = process.communicate()
                if process.returncode not in (0, -9):
                    print(f"training {i}:", errors.decode())
                    ok = False
                    break
                if os.path.exists(os.path.join(model, "options.json")):
                    for error in place.uses(model):
                        print(f"training {i}:", error)
                        ok = False
                if process.returncode == 0:
                    break
            usable += ok
            equal += files(model) == expected
            shutil.rmtree(model, ignore_errors=True)
        print(f"{count} trainings killed at random moments ({several} of them more than once), a third of them over another "
              f"model: {usable} whole folders, {equal} equal results; {anew} began anew, {kept} found the old model")
        return usable == equal == count


def readers(program, seconds):
    with tempfile.TemporaryDirectory() as folder:
        place = Place(program, folder)
        model = os.path.join(folder, "m")
        process = subprocess.Popen(place.train(model, "--max-minutes", "60", "--epochs", "10000000", "--validate-every", "1"),
                                   stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not os.path.exists(os.path.join(model, "options.json")):
            time.sleep(0.01)
        reads, failed, end = 0, [], time.time() + seconds
        while time.time() < end and process.poll() is None:
            failed += place.uses(model)
            reads += 2
        saves = process.poll() is None
        process.kill()
        process.wait()
        print(f"{reads} runs of inspect and translate while a training saved: {len(failed)} failed", *failed[:3])
        return not failed and saves and reads > 0


def disk(program):
    with tempfile.TemporaryDirectory() as folder:
        place = Place(program, folder)
        mount = os.path.join(folder, "disk")
        os.mkdir(mount)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", mount], check=True)
        try:
            limits = ["--max-steps", "40", "--validate-every", "10"]
            whole, model, filler = os.path.join(folder, "whole"), os.path.join(mount, "m"), os.path.join(mount, "filler")
            subprocess.run(place.train(whole, *limits), check=True, capture_output=True)
            subprocess.run(place.train(model, "--max-steps", "5", "--seed", "9"), check=True, capture_output=True)
            before, good = files(model), True
            # Too little room for a new training: nothing changes.
            for free in range(0, 4_000_000, 200_000):
                with open(filler, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(mount).free - free or 1)
                done = place.run(place.train(model, *limits, "--overwrite"))
                same = files(model) == before
                print(f"{free // 1000} kB free: exit code {done.returncode}, old model",
                      "kept" if same else "replaced", "-", done.stderr.strip().splitlines()[-1])
                if done.returncode != 0:
                    good &= same and not place.uses(model) and "No space left" in done.stderr
                else:
                    good &= files(model) == files(whole)
                    break
                os.remove(filler)
            if os.path.exists(filler):
                os.remove(filler)
            # A disk that fills while the training is under way.
            shutil.rmtree(model)
            process = subprocess.Popen(place.train(model, "--epochs", "1000000", "--validate-every", "10"),
                                       stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            while not os.path.exists(os.path.join(model, "options.json")):
                time.sleep(0.01)
            time.sleep(1)
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError:
                    pass
            _, errors = process.communicate()
            print(f"full while training: exit code {process.returncode} -", errors.strip().splitlines()[-1])
            good &= process.returncode == 1 and "No space left" in errors and not place.uses(model)
            os.remove(filler)
            step = str(int(errors.split("--resume continues from step ")[1].split()[0]) + 20)
            done = place.run([program, "train", "--resume", "--model", model, "--epochs", "1000000", "--max-steps", step])
            good &= done.returncode == 0
            print("after room was made:", done.stderr.strip().splitlines()[-2])
            again = os.path.join(folder, "again")
            subprocess.run(place.train(again, "--epochs", "1000000", "--max-steps", step, "--validate-every", "10"), check=True, capture_output=True)
            same = files(model)["model.safetensors"] == files(again)["model.safetensors"]
            print("its model is that of a training that never stopped:", same)
            return good and same
        finally:
            subprocess.run(["umount", mount], check=True)


if __name__ == "__main__":
    program, what, *rest = sys.argv[1:]
    modes = {"kills": lambda: kills(program, int(rest[0]) if rest else 50),
             "readers": lambda: readers(program, float(rest[0]) if rest else 30), "disk": lambda: disk(program)}
    sys.exit(0 if modes[what]() else 1)
