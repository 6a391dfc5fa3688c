#!/usr/bin/env python3
"""random_trees.py TRANSLATOR MODEL SENTENCES [COUNT [SEED]]

Puts random trees of tags over COUNT sentences (default 1000) of the file SENTENCES (one a line), and has the program
TRANSLATOR translate them by MODEL as HTML and as XML. With Python's own parsers it checks that every tree comes
back well-formed, with the same tags, attributes and comments, and with each tag in the same ones, and counts how many
translations are, without their tags, what the sentence alone gives. Then it puts random placeholders into
the sentences and counts those that come out once. Ends with 1 where something is wrong."""
import html
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

VOID = ("img", "wbr", "input")
NAMES = ("b", "i", "em", "strong", "span", "a", "u", "q", "sub", "mark")


class Tree:
    """Random markup over the words of a sentence; each tag has a number of its own."""

    def __init__(self, number, xml, chance):
        self.number, self.xml, self.chance, self.ids = number, xml, chance, 0
        self.out = []

    def attributes(self):
        self.ids += 1
        extra = self.chance.choice(("", "", ' title="1 &gt; 0 &amp; x"', " lang='en'"))
        return f' id="{self.number}-{self.ids}"{extra}'

    def point(self):
        kind = self.chance.randrange(8)
        if kind == 0:
            self.out.append(f"<{self.chance.choice(VOID)}{self.attributes()}{'/' if self.xml else ''}>")
        elif kind == 1:
            self.ids += 1
            self.out.append(f"<!-- {self.number}-{self.ids} <b> -->")
        elif kind == 2:
            name = self.chance.choice(NAMES)
            self.out.append(f"<{name}{self.attributes()}></{name}>")

    def over(self, words, depth=0):
        at = 0
        while at < len(words):
            end = self.chance.randint(at + 1, len(words))
            self.point()
            space = " " if end < len(words) else ""
            if depth < 5 and self.chance.random() < 0.6:
                name = self.chance.choice(NAMES)
                inside = space and self.chance.random() < 0.2
                self.out.append(f"<{name}{self.attributes()}>")
                self.over(words[at:end], depth + 1)
                self.out.append((" " if inside else "") + f"</{name}>" + ("" if inside else space))
            else:
                text = " ".join(words[at:end])
                self.out.append(html.escape(text, quote=self.chance.random() < 0.5) + space)
            at = end
        self.point()
        return "".join(self.out)


class Reader(HTMLParser):
    """The text of each paragraph, and for each tag what it is and is in."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.wrong = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs), tuple(self.open)))
        if tag == "p":
            self.texts.append("")
        if tag not in VOID:
            self.open.append((tag, tuple(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop()[0] != tag:
            self.wrong += 1

    def handle_comment(self, data):
        self.tags.append(("comment", data, tuple(self.open)))

    def handle_data(self, data):
        if self.open:
            self.texts[-1] += data


def read_html(document):
    reader = Reader()
    reader.feed(document)
    reader.close()
    return reader.tags, reader.texts, reader.wrong + len(reader.open)


def read_xml(document):
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.fromstring(document, parser=parser)
    tags = []

    def visit(element, outer):
        comment = not isinstance(element.tag, str)
        tags.append(("comment", element.text, outer) if comment
                    else (element.tag, tuple(sorted(element.attrib.items())), outer))
        for child in element:
            visit(child, outer + ((element.tag, tuple(sorted(element.attrib.items()))),))

    visit(root, ())
    texts = []
    for paragraph in root.iter("p"):
        def text_of(element):
            own = element.text or "" if isinstance(element.tag, str) else ""
            return own + "".join(text_of(child) + (child.tail or "") for child in element)
        texts.append(text_of(paragraph))
    return tags, texts, 0


def translate(program, model, document, *options):
    done = subprocess.run([program, "translate", "--model", model, "--beam", "1", *options], input=document.encode(),
                          stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def count_alone(piece, text):
    return len(re.findall(r"(?<!\S)" + re.escape(piece) + r"(?![^\s.,!?])", text))


def main():
    program, model, path = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    chance = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    with open(path, encoding="utf-8") as file:
        sentences = [" ".join(line.split()) for line in file if line.strip()]
    sentences = chance.sample(sentences, count)
    plain = translate(program, model, "\n".join(sentences) + "\n").splitlines()
    failed = False
    for name, xml, read in (("html", False, read_html), ("xml", True, read_xml)):
        bare = "".join(f"<p>{html.escape(s, quote=False)}</p>\n" for s in sentences)
        trees = "".join(f"<p>{Tree(i, xml, chance).over(s.split())}</p>\n" for i, s in enumerate(sentences))
        if xml:
            # An element beside text is part of sentences; p never is.
            inline = "".join(f"<{n}/>" for n in NAMES + VOID)
            bare, trees = (f"<doc><p>x {inline}</p>\n{d}</doc>" for d in (bare, trees))
        tags, texts, wrong = read(trees)
        assert wrong == 0 and [t.strip() for t in texts][-count:] == sentences
        out_tags, out_texts, out_wrong = read(translate(program, model, trees, "--input-format", name))
        out_texts = out_texts[-count:]
        same = sorted(map(repr, tags)) == sorted(map(repr, out_tags))
        alone = read(translate(program, model, bare, "--input-format", name))[1][-count:]
        print(f"{name}: {count} trees with {len(tags)} tags and comments: "
              f"{'well-formed' if out_wrong == 0 else str(out_wrong) + ' tags do not match'}, "
              f"{'the same tags in the same tags' if same else 'NOT the same tags'}")
        print(f"{name}: {sum(a == b for a, b in zip(out_texts, plain))} texts without their tags are the plain "
              f"translation, {sum(a.split() == b.split() for a, b in zip(out_texts, plain))} but for white space; "
              f"{sum(a == b for a, b in zip(alone, plain))} of the sentences without tags")
        failed = failed or out_wrong > 0 or not same or alone != plain

    pieces = ("{name}", "%s", "%1$d", "<0>", "</1>", "${x}", "{{ x.y }}", "https://example.org/a?b=c&d=e",
              "jane.doe@example.org", "www.example.org")
    lines, wanted = [], []
    for sentence in sentences:
        words = sentence.split()
        chosen = chance.sample(pieces, chance.randint(1, 3))
        for piece in chosen:
            words.insert(chance.randrange(len(words)), piece)
        # Pieces that touch would be one.
        lines.append(" ".join(words))
        wanted.append(chosen)
    document = "\n".join(lines) + "\n"
    for options in ((), ("--protect",)):
        out = translate(program, model, document, *options).splitlines()
        once = sum(count_alone(p, line) == 1 for line, chosen in zip(out, wanted) for p in chosen)
        total = sum(map(len, wanted))
        print(f"placeholders{' with' if options else ' without'} --protect: {once} of {total} come out once")
        failed = failed or (options and once < total)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
