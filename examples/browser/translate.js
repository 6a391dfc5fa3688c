// node translate.js ENGINE.js: translates the lines of standard input with a built engine, as the page does. With --time it prints the
// time of the CPU that this took instead, the least of ten passes after one that is not counted.
"use strict";
const fs = require("fs");
const path = require("path");

const [file, option] = process.argv.slice(2);
if (!file || (option && option !== "--time")) {
  console.error("usage: translate.js ENGINE.js [--time]");
  process.exit(2);
}
const lines = fs.readFileSync(0, "utf8").split("\n");
if (lines.at(-1) === "") lines.pop();

require(path.resolve(file))().then((engine) => {
  const translate = (line) => {
    const found = engine.ccall("translate", "string", ["string"], [line]);
    const why = engine.ccall("why_not", "string", [], []);
    if (why) throw new Error(why);
    return found;
  };
  const translations = lines.map(translate);
  if (!option) {
    process.stdout.write(translations.map((text) => text + "\n").join(""));
    return;
  }
  let best = Infinity;
  for (let pass = 0; pass < 10; ++pass) {
    const start = process.cpuUsage();
    lines.forEach(translate);
    best = Math.min(best, process.cpuUsage(start).user / 1000);
  }
  console.log(`${lines.length} lines in ${best.toFixed(1)} ms: ${((1000 * lines.length) / best).toFixed(0)} a second`);
}).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
