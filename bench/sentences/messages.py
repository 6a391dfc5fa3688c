#!/usr/bin/env python3
"""Prints sentences of a language, one a line, from the translated messages of programs: real text where no corpus is at hand.

    python3 bench/sentences/messages.py fr /usr/share/locale x/usr/share/locale > fr.txt

The folders hold LANGUAGE/LC_MESSAGES/*.mo. A message counts as one sentence if its English original has at least three words and a
single mark that can end a sentence, at its end, and if the translation ends with such a mark, too. The translation may have others
inside, for example in abbreviations.
"""

import argparse
import gettext
import pathlib
import re
import sys

ONE_SENTENCE = re.compile(r"[A-Z][^.!?:;]*[a-z)][.!?]")


def sentences(path):
    """The translations of a message catalogue that are one sentence."""
    try:
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog
    except (OSError, ValueError, IndexError) as error:
        print(f"{path} is left out: {error}", file=sys.stderr)
        return
    for original, translation in catalog.items():
        if not isinstance(original, str) or not isinstance(translation, str):
            continue  # plural forms
        original = " ".join(original.split("\x04")[-1].split())  # after the message's context
        translation = " ".join(translation.split())
        if len(original.split()) >= 3 and ONE_SENTENCE.fullmatch(original) and translation[-1:] in set(".!?") and translation != original:
            yield translation


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", help="as in the folders' names, such as fr")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    found = {}
    for folder in args.folders:
        files = sorted((folder / args.language / "LC_MESSAGES").glob("*.mo"))
        if not files:
            parser.error(f"{folder} has no {args.language}/LC_MESSAGES/*.mo")
        for path in files:
            found.update(dict.fromkeys(sentences(path)))
    for sentence in found:
        print(sentence)


if __name__ == "__main__":
    main()
