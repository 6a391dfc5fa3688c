#!/usr/bin/env python3
"""Puts a server under load: starts it, sends requests from many clients of which some go away, some are malformed and some
too large, and reports crashes, wrong answers, memory, latency and throughput. Run by hand, on a machine with nothing else to do.
Options go before the file of sentences.

  load_test.py sentences.en -- translator serve --model en-de=FOLDER --port 0 --quiet
  load_test.py sentences.en -- translator serve --model en-de=FOLDER --port 0 --quiet --batch-size 1   # no batching
  load_test.py --minutes 30 --pause 0.6 --requests 100000000 sentences.en -- translator serve ...    # a soak: memory every minute

The expected answers come from the server itself, asked one at a time before the load: with whatever else a sentence is
translated, its translation is the same.
"""
import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

MALFORMED = [
    (b"HELLO\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
    (b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{\"q\":", 400),
    (b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    (b"GET /translate HTTP/1.1\r\nHost: a\r\n\r\n", 405),
]


def request(text, stream=False, source="en", target="de"):
    body = json.dumps({"q": text, "source": source, "target": target, "stream": stream}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader):
    """The status and body of an answer, of a stream all events."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status = int(head.split()[1])
    length = re.search(r"(?i)content-length: (\d+)", head)
    if length:
        return status, await reader.readexactly(int(length.group(1)))
    body = b""
    while "chunked" in head.lower():
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            break
    return status, body


def translation(body, stream):
    if not stream:
        return json.loads(body)["translatedText"]
    events = body.decode().strip().split("\n\n")
    assert events[-1].startswith("event: done\n"), events[-1]
    return json.loads(events[-1].split("data: ", 1)[1])["translatedText"]


def process_memory(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def process_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load:
    def __init__(self, port, sentences, options):
        self.port, self.sentences, self.options = port, sentences, options
        self.random = random.Random(options.seed)
        self.left = options.requests
        self.seconds, self.wrong, self.counts = [], [], {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    async def open(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def references(self):
        self.expected = {}
        reader, writer = await self.open()
        for sentence in self.sentences:
            writer.write(request(sentence))
            status, body = await answer(reader)
            assert status == 200, (status, body)
            self.expected[sentence] = translation(body, False)
        writer.close()

    async def bad(self, data, expected):
        reader, writer = await self.open()
        try:
            writer.write(data)
            status, _ = await answer(reader)
            self.count(f"refused with {status}")
            if status != expected:
                self.wrong.append((data[:60], status))
        finally:
            writer.close()

    async def gone(self, sentence, stream):
        _, writer = await self.open()
        writer.write(request(sentence, stream))
        await writer.drain()
        await asyncio.sleep(self.random.random() * 0.02)
        writer.transport.abort() if self.random.random() < 0.5 else writer.close()
        self.count("went away")

    async def client(self):
        reader, writer = await self.open()
        while self.left > 0 and time.monotonic() < self.end:
            self.left -= 1
            if self.options.pause:
                await asyncio.sleep(2 * self.options.pause * self.random.random())
            dice, sentence = self.random.random(), self.random.choice(self.sentences)
            stream = self.random.random() < 0.1
            if dice < self.options.cancelled:
                await self.gone(sentence, stream)
            elif dice < self.options.cancelled + self.options.malformed:
                await self.bad(*self.random.choice(MALFORMED))
            elif dice < self.options.cancelled + self.options.malformed + self.options.oversized:
                await self.bad(request("a" * (2 << 20)), 413)
            else:
                began = time.monotonic()
                writer.write(request(sentence, stream))
                status, body = await answer(reader)
                self.seconds.append(time.monotonic() - began)
                self.count(f"translated with {status}")
                if status != 200 or translation(body, stream) != self.expected[sentence]:
                    self.wrong.append((sentence, status, body))
        writer.close()

    async def report_memory(self, pid):
        while True:
            await asyncio.sleep(60)
            print(f"{(time.monotonic() - self.began) / 60:.0f} min: {len(self.seconds)} translated, {process_memory(pid):.1f} MiB", flush=True)

    async def run(self, pid):
        await self.references()
        before = process_memory(pid)
        self.began = began = time.monotonic()
        self.end = began + 60 * self.options.minutes if self.options.minutes else float("inf")
        reports = asyncio.ensure_future(self.report_memory(pid)) if self.options.minutes else None
        await asyncio.gather(*(self.client() for _ in range(self.options.clients)))
        if reports:
            reports.cancel()
        taken = time.monotonic() - began
        await asyncio.sleep(3)  # what was cancelled ends
        seconds = sorted(self.seconds)
        at = lambda share: 1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))]
        print("requests:", ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())))
        print(f"wrong answers: {len(self.wrong)}", *self.wrong[:3], sep="\n  " if self.wrong else "")
        print(f"latency: p50 {at(.5):.1f} ms, p95 {at(.95):.1f} ms, p99 {at(.99):.1f} ms")
        print(f"sentences/s: {len(seconds) / taken:.1f}")
        print(f"memory: {before:.1f} MiB before, {process_memory(pid):.1f} MiB after")
        busy = process_seconds(pid)
        await asyncio.sleep(self.options.idle)
        print(f"CPU of {self.options.idle} idle seconds: {process_seconds(pid) - busy:.2f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sentences")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--minutes", type=float, default=0, help="end after this time, and print memory every minute; 0: no limit")
    parser.add_argument("--pause", type=float, default=0, help="mean seconds that a client waits before a request")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--distinct", type=int, default=200, help="different sentences")
    parser.add_argument("--cancelled", type=float, default=0.05)
    parser.add_argument("--malformed", type=float, default=0.05)
    parser.add_argument("--oversized", type=float, default=0.02)
    parser.add_argument("--idle", type=int, default=10, help="seconds to look at the idle server's CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("server", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with open(options.sentences, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()][: options.distinct]
    server = subprocess.Popen(options.server[1:] if options.server[:1] == ["--"] else options.server, stderr=subprocess.PIPE,
                              text=True)
    log = []
    for line in server.stderr:
        log.append(line)
        if found := re.search(r"listening on http://[^/]*:(\d+)/", line):
            break
    else:
        sys.exit("the server did not start:\n" + "".join(log))
    load = Load(int(found.group(1)), sentences, options)
    try:
        asyncio.run(load.run(server.pid))
    finally:
        crashed = server.poll()
        if crashed is None:
            server.send_signal(signal.SIGTERM)
        rest = server.communicate()[0:2][1] or ""
        print("the server", "ended by itself:" if crashed is not None else "ended with", server.returncode)
        for line in rest.splitlines():
            if "Sanitizer" in line or "WARNING" in line:
                print(line)
    sys.exit(1 if load.wrong or server.returncode != 0 else 0)


if __name__ == "__main__":
    main()
