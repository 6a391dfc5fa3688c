#!/usr/bin/env python3
"""random_glossary.py TRANSLATOR MODEL SOURCE REFERENCE [option ...]: what a glossary of random terms does to translations.

Draws one to three terms for each line: words of the source that no other line has side by side, and one to three words of a
reference. Translates without the glossary and with it, looks for each term in the translations by itself, and prints the
share of terms that are there and BLEU, twice: with terms from the line's own reference, which tell the model something,
and with terms from another line's, which only disturb it. Options go to `translator translate`, such as --beam 1. Needs
sacrebleu; the figures in docs/translator/translating.md are its output.
"""

import collections
import random
import re
import subprocess
import sys
import tempfile
import time

import sacrebleu


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def ngrams(line, most):
    """Where one to `most` words stand side by side, without punctuation."""
    words = list(re.finditer(r"[^\W_]+", line))
    for i in range(len(words)):
        for n in range(1, most + 1):
            if i + n > len(words):
                break
            text = line[words[i].start() : words[i + n - 1].end()]
            if re.fullmatch(r"[^\W_]+( [^\W_]+)*", text):
                yield words[i].start(), words[i + n - 1].end(), text


def draw(sources, references, foreign, generator):
    """One term list for each line: (source, target)."""
    lines_with = collections.Counter()
    for line in sources:
        lines_with.update({text for _, _, text in ngrams(line, 3)})
    terms = []
    for i, line in enumerate(sources):
        own = [g for g in ngrams(line, 3) if lines_with[g[2]] == 1 and line.count(g[2]) == 1]
        j = i
        while foreign and j == i:
            j = generator.randrange(len(references))
        targets = [text for _, _, text in ngrams(references[j], 3)]
        generator.shuffle(own)
        chosen, taken = [], []
        for begin, end, text in own:
            if len(chosen) == 3 or any(begin < e and b < end for b, e in taken):
                continue
            taken.append((begin, end))
            chosen.append((text, generator.choice(targets)))
        terms.append(chosen[: generator.randint(1, 3)])
    return terms


def has(text, term):
    if re.search(r"(?<!\w)" + re.escape(term) + r"(?!\w)", text):
        return True
    return re.match(re.escape(term[0].upper() + term[1:]) + r"(?!\w)", text) is not None


def translate(translator, model, source, options):
    began = time.time()
    done = subprocess.run(
        [translator, "translate", "--model", model, "--input", source, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout.splitlines(), done.stderr, time.time() - began


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    translator, model, source, reference, *options = sys.argv[1:]
    sources, references = read(source), read(reference)
    bleu = lambda lines: sacrebleu.corpus_bleu(lines, [references]).score
    without, _, seconds = translate(translator, model, source, options)
    print(f"without a glossary: BLEU {bleu(without):.2f}, {seconds:.1f} s")
    for foreign in (False, True):
        terms = draw(sources, references, foreign, random.Random(1))
        with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as glossary:
            for of_line in terms:
                for term in of_line:
                    glossary.write("\t".join(term) + "\n")
            glossary.flush()
            found, messages, seconds = translate(
                translator, model, source, [*options, "--glossary", glossary.name])
        total = sum(len(of_line) for of_line in terms)
        missing = [(i, t) for i, of_line in enumerate(terms) for _, t in of_line if not has(found[i], t)]
        before = sum(has(without[i], t) for i, of_line in enumerate(terms) for _, t in of_line)
        longest = max(len(line.split()) for line in found)
        print(f"terms of {'another' if foreign else 'the own'} reference: {total} in {sum(map(bool, terms))} lines, "
              f"{100 * before / total:.1f} % there without, {100 - 100 * len(missing) / total:.2f} % with, "
              f"BLEU {bleu(found):.2f}, {seconds:.1f} s; longest line {longest} words, "
              f"{len(messages.splitlines())} messages")
        for i, term in missing[:10]:
            print(f"  line {i + 1}: '{term}' is not in '{found[i]}'")


main()
