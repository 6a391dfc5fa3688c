#include "translator/explorer/page_text.hpp"

namespace eigenformer::detail {

const char* const explorer_html = R"page(<main>
<h1>What each head attends to</h1>
<div class="bar">
  <button id="previous" title="previous sentence (p)">&#8592;</button>
  <select id="sentence" aria-label="sentence"></select>
  <button id="next" title="next sentence (n)">&#8594;</button>
</div>
<div class="texts">
  <p><b>Source</b> <span id="source"></span></p>
  <p><b>Target</b> <span id="target"></span></p>
</div>
<div class="bar" id="kinds" role="group" aria-label="attention"></div>
<div class="panes">
  <section aria-labelledby="heads-title">
    <h2 id="heads-title">Layers and heads</h2>
    <div id="heads"></div>
  </section>
  <section aria-labelledby="map-title">
    <h2 id="map-title"></h2>
    <canvas id="map" role="img"></canvas>
    <p id="readout" aria-live="polite"></p>
  </section>
  <section aria-labelledby="lines-title">
    <h2 id="lines-title">As lines: tokens on the right attend to tokens on the left</h2>
    <svg id="lines" role="group" aria-label="lines between tokens"></svg>
  </section>
</div>
<p class="help"><kbd>&#8592;</kbd> <kbd>&#8594;</kbd> head &nbsp; <kbd>&#8593;</kbd> <kbd>&#8595;</kbd> layer &nbsp;
<kbd>1</kbd> <kbd>2</kbd> <kbd>3</kbd> which attention &nbsp; <kbd>n</kbd> <kbd>p</kbd> sentence &nbsp;
<kbd>Esc</kbd> all lines. Each row of the map shows what one token attends to; the row of a target token shows the
attention when the model chose that token. Point at a cell for its weight; click a token to show only its lines.</p>
</main>
)page";

const char* const explorer_style = R"page(:root {
  color-scheme: light dark;
  --back: #f6f7f9; --pane: #ffffff; --ink: #1b1f24; --dim: #57606a; --line: #c9d0d8; --focus: #0b5fcc;
  --low: #ffffff; --high: #084594; --chosen: #c2410c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171a; --pane: #1d2125; --ink: #e6e9ec; --dim: #a3abb3; --line: #3c444c; --focus: #6cb0ff;
    --low: #1d2125; --high: #9ecbff; --chosen: #fb923c;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 100rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.2rem; margin: 0 0 .6rem; }
h2 { font-size: .95rem; margin: 0 0 .5rem; }
p { margin: .25rem 0; }
.bar { display: flex; flex-wrap: wrap; gap: .5rem .75rem; align-items: center; margin-bottom: .6rem; }
select, button { font: inherit; color: inherit; background: var(--pane); border: 1px solid var(--line);
  border-radius: .4rem; padding: .25rem .6rem; }
select { flex: 1; min-width: 10rem; max-width: 60rem; text-overflow: ellipsis; }
button { cursor: pointer; }
button:disabled { opacity: .45; cursor: default; }
button[aria-pressed="true"] { border-color: var(--chosen); box-shadow: inset 0 0 0 1px var(--chosen); }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
.panes { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.panes section { background: var(--pane); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem;
  max-width: 100%; overflow: auto; }
.texts { margin-bottom: .75rem; }
.texts b { display: inline-block; min-width: 4.5rem; color: var(--dim); font-weight: 600; }
#heads { display: grid; gap: 3px; align-items: center; justify-content: start; }
#heads span { color: var(--dim); font-size: .75rem; text-align: center; padding: 0 .2rem; }
#heads button { padding: 0; border-radius: 2px; line-height: 0; }
#heads canvas { width: 44px; height: 44px; image-rendering: pixelated; }
#readout { min-height: 1.5em; color: var(--dim); font-variant-numeric: tabular-nums; }
.help { color: var(--dim); font-size: .85rem; margin-top: .75rem; }
kbd { font: .85em ui-monospace, monospace; border: 1px solid var(--line); border-radius: .25rem; padding: 0 .3em; }
svg text { fill: var(--ink); font: 14px system-ui, sans-serif; cursor: default; }
svg text.chosen { fill: var(--chosen); font-weight: 600; }
svg line { stroke: var(--high); stroke-linecap: round; }
#lines [tabindex]:focus-visible { outline: 2px solid var(--focus); }
)page";

const char* const explorer_script = R"page('use strict';
const sentences = JSON.parse(document.getElementById('data').textContent).sentences;
const kinds = [
  {name: 'memory', title: 'Target to source'},
  {name: 'source', title: 'Source to source'},
  {name: 'target', title: 'Target to target'},
];
const at = {sentence: 0, kind: 0, layer: 0, head: 0, token: null};
const element = id => document.getElementById(id);
const svg = (name, attributes) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};

// The tokens that attend (rows) and those that are attended to (columns).
function sides() {
  const s = sentences[at.sentence];
  return {
    memory: [s.target_tokens, s.source_tokens],
    source: [s.source_tokens, s.source_tokens],
    target: [s.target_tokens, s.input_tokens],
  }[kinds[at.kind].name];
}
const maps = () => sentences[at.sentence].maps[kinds[at.kind].name];

// The weights of a head in thousandths, row by row; after the last head: the mean of all.
function weights(layer, head) {
  const heads = maps()[layer];
  if (head < heads.length) return heads[head];
  return heads[0].map((_, i) => heads.reduce((sum, w) => sum + w[i], 0) / heads.length);
}
const headName = head => head < maps()[at.layer].length ? 'head ' + head : 'mean of all heads';

function color(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
}
// From one colour to the other; small weights are raised so that they are visible.
function shader() {
  const low = color('--low'), high = color('--high');
  return w => {
    const share = Math.pow(Math.min(1, w / 1000), 0.6);
    return low.map((x, i) => Math.round(x + (high[i] - x) * share));
  };
}

function drawThumbnail(canvas, values, rows, columns) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d'), image = context.createImageData(columns, rows), shade = shader();
  for (let i = 0; i < rows * columns; ++i) image.data.set([...shade(values[i]), 255], 4 * i);
  context.putImageData(image, 0, 0);
}

function drawHeads() {
  const [rows, columns] = sides(), box = element('heads');
  box.replaceChildren();
  const count = Math.max(...maps().map(heads => heads.length));
  box.style.gridTemplateColumns = 'auto repeat(' + (count + 1) + ', auto)';
  const label = text => {
    const made = document.createElement('span');
    made.textContent = text;
    box.append(made);
  };
  label('');
  for (let h = 0; h < count; ++h) label(h);
  label('mean');
  maps().forEach((heads, layer) => {
    label(layer);
    for (let h = 0; h <= count; ++h) {
      // A layer of fewer heads has its mean in the column of means.
      const head = h === count ? heads.length : h;
      if (h < count && h >= heads.length) { label(''); continue; }
      const button = document.createElement('button'), canvas = document.createElement('canvas');
      drawThumbnail(canvas, weights(layer, head), rows.length, columns.length);
      button.append(canvas);
      button.title = 'layer ' + layer + ', ' + (head < heads.length ? 'head ' + head : 'mean');
      button.setAttribute('aria-label', button.title);
      button.setAttribute('aria-pressed', layer === at.layer && head === at.head);
      button.onclick = () => { at.layer = layer; at.head = head; draw(); };
      box.append(button);
    }
  });
}

let cells = null;  // where the map's cells are: left, top, size
function drawMap() {
  const [rows, columns] = sides(), values = weights(at.layer, at.head), canvas = element('map');
  const context = canvas.getContext('2d'), ratio = window.devicePixelRatio || 1;
  const font = '14px system-ui, sans-serif';
  context.font = font;
  const width = tokens => Math.min(180, Math.max(...tokens.map(t => context.measureText(t).width)));
  const size = Math.max(8, Math.min(26, Math.floor(640 / Math.max(rows.length, columns.length))));
  const left = width(rows) + 8, top = width(columns) * 0.75 + 18;
  const right = width(columns) * 0.7;  // the last label leans over
  cells = {left, top, size, rows: rows.length, columns: columns.length};
  const w = left + size * columns.length + right + 4, h = top + size * rows.length + 2;
  canvas.width = w * ratio;
  canvas.height = h * ratio;
  canvas.style.width = w + 'px';
  canvas.style.height = h + 'px';
  context.scale(ratio, ratio);
  context.font = font;
  const style = getComputedStyle(document.documentElement), shade = shader();
  const ink = style.getPropertyValue('--ink'), chosen = style.getPropertyValue('--chosen');
  values.forEach((value, i) => {
    const x = i % columns.length, y = Math.floor(i / columns.length);
    context.fillStyle = 'rgb(' + shade(value).join() + ')';
    context.fillRect(left + x * size, top + y * size, size - 1, size - 1);
  });
  context.strokeStyle = style.getPropertyValue('--line');
  context.strokeRect(left - 1, top - 1, size * columns.length + 1, size * rows.length + 1);
  context.textBaseline = 'middle';
  const every = Math.max(1, Math.ceil(12 / size));  // labels that do not touch
  context.textAlign = 'right';
  rows.forEach((token, y) => {
    if (y % every) return;
    context.fillStyle = at.token && at.token.row === y ? chosen : ink;
    context.fillText(token, left - 5, top + (y + 0.5) * size, 180);
  });
  context.textAlign = 'left';
  columns.forEach((token, x) => {
    if (x % every) return;
    context.save();
    context.translate(left + (x + 0.5) * size, top - 6);
    context.rotate(-Math.PI / 4);
    context.fillStyle = at.token && at.token.column === x ? chosen : ink;
    context.fillText(token, 0, 0, 180);
    context.restore();
  });
  canvas.setAttribute('aria-label', rows.map((token, y) => {
    const row = values.slice(y * columns.length, (y + 1) * columns.length);
    return token + ': ' + columns[row.indexOf(Math.max(...row))];
  }).join(', '));
}

function drawLines() {
  const [rows, columns] = sides(), values = weights(at.layer, at.head), box = element('lines');
  box.replaceChildren();
  const step = 24, gap = 150, pad = 6;
  const context = element('map').getContext('2d');
  context.font = '14px system-ui, sans-serif';
  const width = tokens => Math.max(...tokens.map(t => context.measureText(t).width));
  const left = width(columns) + pad, height = step * Math.max(rows.length, columns.length) + pad;
  const total = left + gap + width(rows) + 2 * pad;
  box.setAttribute('width', total);
  box.setAttribute('height', height);
  const y = (i, n) => pad + (height - step * n) / 2 + step * (i + 0.5);
  values.forEach((value, i) => {
    const column = i % columns.length, row = Math.floor(i / columns.length);
    if (at.token && at.token.row !== row && at.token.column !== column) return;
    if (value < 30) return;  // fainter ones cannot be seen
    box.append(svg('line', {
      x1: left + pad, y1: y(column, columns.length), x2: left + gap - pad, y2: y(row, rows.length),
      'stroke-width': 0.5 + 4 * value / 1000, 'stroke-opacity': Math.min(1, 0.15 + value / 1000),
    }));
  });
  const put = (tokens, side, x, anchor) => tokens.forEach((token, i) => {
    const text = svg('text', {x, y: y(i, tokens.length), 'text-anchor': anchor, 'dominant-baseline': 'central', tabindex: 0});
    text.textContent = token;
    const mine = () => at.token && at.token[side] === i;
    if (mine()) text.setAttribute('class', 'chosen');
    text.onclick = () => { at.token = mine() ? null : {[side]: i}; drawMap(); drawLines(); };
    text.onkeydown = event => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      text.onclick();
      element('lines').querySelectorAll('text')[side === 'column' ? i : columns.length + i].focus();
    };
    box.append(text);
  });
  put(columns, 'column', left, 'end');
  put(rows, 'row', left + gap, 'start');
}

function draw() {
  const s = sentences[at.sentence];
  const has = kind => (s.maps[kind.name] || []).length > 0;
  if (!has(kinds[at.kind])) at.kind = kinds.findIndex(has);
  at.layer = Math.min(at.layer, maps().length - 1);
  at.head = Math.min(at.head, maps()[at.layer].length);
  element('sentence').value = at.sentence;
  element('source').textContent = s.source;
  element('target').textContent = s.target;
  element('kinds').replaceChildren(...kinds.map((kind, i) => {
    const button = document.createElement('button');
    button.textContent = kind.title;
    button.setAttribute('aria-pressed', i === at.kind);
    button.disabled = !has(kind);
    if (button.disabled) button.title = 'this model has no such attention';
    button.onclick = () => { at.kind = i; at.token = null; draw(); };
    return button;
  }));
  element('map-title').textContent = kinds[at.kind].title + ', layer ' + at.layer + ', ' + headName(at.head);
  element('readout').textContent = '';
  drawHeads();
  drawMap();
  drawLines();
}

function go(name, value, count) {
  at[name] = Math.max(0, Math.min(count - 1, value));
  if (name === 'sentence') at.token = null;
  draw();
}

if (sentences.length === 0) {
  document.querySelector('main').textContent = 'No line had any words to translate.';
} else {
  sentences.forEach((s, i) => {
    const option = document.createElement('option');
    option.value = i;
    option.textContent = s.line + '. ' + s.source;
    element('sentence').append(option);
  });
  element('sentence').onchange = event => go('sentence', Number(event.target.value), sentences.length);
  element('previous').onclick = () => go('sentence', at.sentence - 1, sentences.length);
  element('next').onclick = () => go('sentence', at.sentence + 1, sentences.length);
  element('map').onmousemove = event => {
    const x = Math.floor((event.offsetX - cells.left) / cells.size), y = Math.floor((event.offsetY - cells.top) / cells.size);
    const inside = x >= 0 && y >= 0 && x < cells.columns && y < cells.rows;
    const [rows, columns] = sides();
    element('readout').textContent = inside
        ? rows[y] + ' attends to ' + columns[x] + ': ' + (weights(at.layer, at.head)[y * cells.columns + x] / 1000).toFixed(3)
        : '';
  };
  element('map').onclick = event => {
    const x = Math.floor((event.offsetX - cells.left) / cells.size), y = Math.floor((event.offsetY - cells.top) / cells.size);
    const row = y >= 0 && y < cells.rows, column = x >= 0 && x < cells.columns;
    at.token = row ? {row: y} : column ? {column: x} : null;
    drawMap();
    drawLines();
  };
  document.onkeydown = event => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === 'SELECT') return;
    const heads = maps()[at.layer].length + 1;
    const keys = {
      ArrowLeft: () => go('head', at.head - 1, heads), ArrowRight: () => go('head', at.head + 1, heads),
      ArrowUp: () => go('layer', at.layer - 1, maps().length), ArrowDown: () => go('layer', at.layer + 1, maps().length),
      n: () => go('sentence', at.sentence + 1, sentences.length), p: () => go('sentence', at.sentence - 1, sentences.length),
      Escape: () => { at.token = null; draw(); },
    };
    for (const [i, kind] of kinds.entries()) {
      if ((sentences[at.sentence].maps[kind.name] || []).length > 0) keys[i + 1] = () => { at.token = null; go('kind', i, kinds.length); };
    }
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  };
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
}
)page";

}  // namespace eigenformer::detail
