#!/usr/bin/env python3
"""How often a running server's /detect is right, line by line. It need not load a model for that, so that any folder will do:

  translator serve --model en-de=FOLDER --model de-en=FOLDER --model fr-en=FOLDER
  check_detection.py http://127.0.0.1:5000/ en=test.en de=test.de fr=test.fr
"""
import http.client
import json
import sys
import urllib.parse

url = urllib.parse.urlparse(sys.argv[1])
connection = http.client.HTTPConnection(url.hostname, url.port)
for argument in sys.argv[2:]:
    code, path = argument.split("=", 1)
    right = lines = 0
    taken_for = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                continue
            connection.request("POST", "/detect", json.dumps({"q": line.strip()}), {"Content-Type": "application/json"})
            found = json.load(connection.getresponse())[0]["language"]
            lines += 1
            right += found == code
            taken_for[found] = taken_for.get(found, 0) + 1
    print(f"{code}: {right} of {lines} lines right ({100 * right / lines:.1f} %), taken for {taken_for}")
