#!/usr/bin/env python3
"""Looks at the page of a running server in headless Chromium: types, waits for the translation, walks along it with the
keyboard, and checks that nothing came from another host and that the browser had nothing to complain of. Writes pictures
in light and dark, with a word chosen and on a narrow window. Run by hand; needs chromium and `pip install websockets`.

  check_page.py http://127.0.0.1:5000/ "Two dogs play in the snow." /tmp/pictures
"""
import asyncio
import base64
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import websockets

KEYS = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Home": 36}


class Browser:
    """A page of Chromium, by its DevTools protocol."""

    def __init__(self, socket):
        self.socket = socket
        self.numbers = itertools.count(1)
        self.answers = {}
        self.events = []
        self.reader = asyncio.create_task(self.read())

    async def read(self):
        async for text in self.socket:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]].set_result(message)
            else:
                self.events.append(message)

    async def call(self, method, **parameters):
        number = next(self.numbers)
        self.answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        answer = await asyncio.wait_for(self.answers[number], 30)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def value(self, expression):
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    async def wait_for(self, expression):
        for _ in range(600):
            if await self.value(expression):
                return
            await asyncio.sleep(0.05)
        raise RuntimeError(f"after 30 s still not: {expression}")

    async def press(self, key, modifiers=0):
        code = KEYS.get(key, 13)
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                            modifiers=modifiers)

    async def picture(self, path):
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


async def look(page_url, text, folder, debugger):
    for _ in range(100):
        try:
            tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{debugger}/json"))
            break
        except OSError:
            await asyncio.sleep(0.1)
    tab = next(tab for tab in tabs if tab["type"] == "page")
    async with websockets.connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
        browser = Browser(socket)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await browser.call(f"{domain}.enable")
        await browser.call("Page.navigate", url=page_url)
        await browser.wait_for("document.readyState === 'complete' && document.getElementById('source').length > 0")
        assert await browser.value("document.activeElement.id") == "text", "the field has no focus"
        await browser.call("Input.insertText", text=text)
        await browser.wait_for("document.querySelectorAll('#output .word').length > 0 && "
                               "document.getElementById('output').getAttribute('aria-busy') === 'false'")
        await browser.picture(folder / "light.png")
        await browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        await browser.picture(folder / "dark.png")
        for _ in range(10):  # by the keyboard alone to the translation's first word
            await browser.press("Tab")
            if await browser.value("document.activeElement.classList.contains('word')"):
                break
        assert await browser.value("document.activeElement.classList.contains('word')"), "Tab does not get to the translation"
        first = await browser.value("document.getElementById('word').textContent")
        await browser.press("ArrowRight")
        second = await browser.value("document.getElementById('word').textContent")
        print(f"first word: {first}\nsecond word: {second}")
        assert first and second and first != second, "the arrow keys do not move along the words"
        marked = await browser.value("document.querySelectorAll('#mirror mark').length")
        print(f"words of the source marked: {marked}")
        await browser.picture(folder / "dark-word.png")
        await browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        await browser.picture(folder / "light-word.png")
        await browser.call("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=True)
        await browser.picture(folder / "narrow.png")
        requests = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
        foreign = [url for url in requests if not url.startswith((page_url.split("?")[0], "data:"))]
        complaints = [e["params"] for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        print(f"{len(requests)} requests, {len(foreign)} of them to other hosts; {len(complaints)} complaints")
        assert not foreign, foreign
        assert not complaints, complaints
        return await browser.value("document.getElementById('output').textContent")


def main():
    page_url, text, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    debugger = 9333
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        chromium = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900", f"--user-data-dir={profile}",
             f"--remote-debugging-port={debugger}", "about:blank"], stderr=subprocess.DEVNULL)
        try:
            print("translation:", asyncio.run(look(page_url, text, folder, debugger)))
        finally:
            chromium.terminate()
            chromium.wait()


if __name__ == "__main__":
    main()
