#include "translator/server/page/page.hpp"

namespace eigenformer::detail {

const char* const page_html = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Translator</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
</head>
<body>
<main>
<h1>Translator</h1>
<form id="form">
<div class="bar">
<label>From <select id="source"></select></label>
<button type="button" id="swap" title="Swap the languages" aria-label="Swap the languages">&#8644;</button>
<label>To <select id="target"></select></label>
<label>Format <select id="format"><option value="text">text</option><option value="html">HTML</option></select></label>
<label id="key-label" hidden>API key <input id="key" type="password" autocomplete="off"></label>
</div>
<div class="panes">
<section>
<div class="field">
<div id="mirror" aria-hidden="true"></div>
<textarea id="text" aria-label="Text to translate" placeholder="Type or paste a text" autofocus spellcheck="true"></textarea>
</div>
<p class="note"><span id="count"></span> <button type="submit">Translate <kbd>Ctrl</kbd> <kbd>Enter</kbd></button></p>
</section>
<section>
<div id="output" role="group" aria-label="Translation" aria-live="polite" aria-busy="false"></div>
<p class="note"><span id="word" role="status"></span> <button type="button" id="copy">Copy</button></p>
</section>
</div>
</form>
<p id="error" role="alert"></p>
<section id="others" hidden>
<h2>Alternatives</h2>
<ol id="alternatives"></ol>
</section>
<p class="legend" id="legend" hidden>Confidence of a word:
<span class="c0">below 40 %</span> <span class="c1">40 to 60 %</span> <span class="c2">60 to 80 %</span>
<span class="c3">above 80 %</span><br>Point at a word, or move along the translation with the arrow keys, to see the source
words that it is aligned with.</p>
</main>
</body>
</html>
)page";

const char* const page_style = R"page(:root {
  color-scheme: light dark;
  --back: #f6f7f9; --pane: #ffffff; --ink: #1b1f24; --dim: #57606a; --line: #c9d0d8; --focus: #0b5fcc;
  --mark: #ffe08a; --c0: #ffc9c2; --c1: #ffe0b8; --c2: #fbf3c0; --bad: #a8071a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171a; --pane: #1d2125; --ink: #e6e9ec; --dim: #a3abb3; --line: #3c444c; --focus: #6cb0ff;
    --mark: #6b5300; --c0: #6b2620; --c1: #63420f; --c2: #4b4510; --bad: #ff9a92;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.3rem; margin: 0 0 .75rem; }
h2 { font-size: 1rem; margin: 1rem 0 .25rem; }
.bar { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin-bottom: .75rem; }
select, input, button, textarea { font: inherit; color: inherit; }
select, input, button {
  background: var(--pane); border: 1px solid var(--line); border-radius: .4rem; padding: .25rem .6rem;
}
button { cursor: pointer; }
kbd { font: .75em ui-monospace, monospace; border: 1px solid var(--line); border-radius: .25rem; padding: 0 .25em; }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
.panes { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
@media (max-width: 45rem) { .panes { grid-template-columns: 1fr; } }
.panes section { display: flex; flex-direction: column; min-width: 0; }
.field { position: relative; flex: 1; display: flex; }
#mirror, #text, #output {
  width: 100%; min-height: 14rem; margin: 0; padding: .75rem; border: 1px solid var(--line); border-radius: .5rem;
  font-size: 1.1rem; line-height: 1.6; white-space: pre-wrap; overflow-wrap: break-word;
}
#mirror, #text { scrollbar-gutter: stable; }
#mirror { position: absolute; inset: 0; overflow: hidden; color: transparent; background: var(--pane); }
#mirror mark { background: var(--mark); color: transparent; border-radius: .2rem; }
#text { position: relative; background: transparent; resize: vertical; }
#output { flex: 1; background: var(--pane); }
#output[aria-busy=true] { color: var(--dim); }
.word { border-radius: .2rem; cursor: default; }
.word:hover, .word.on { background: var(--mark); }
.c0 { background: var(--c0); text-decoration: underline wavy 1px; text-underline-offset: .2em; }
.c1 { background: var(--c1); text-decoration: underline dashed 1px; text-underline-offset: .2em; }
.c2 { background: var(--c2); text-decoration: underline dotted 1px; text-underline-offset: .2em; }
.note { display: flex; justify-content: space-between; align-items: center; gap: 1rem; min-height: 2.2rem;
  margin: .4rem 0 0; color: var(--dim); font-size: .9rem; }
.legend { color: var(--dim); font-size: .9rem; }
.legend span { padding: 0 .3rem; border-radius: .2rem; color: var(--ink); }
#error { color: var(--bad); min-height: 1.5rem; margin: .5rem 0 0; }
#alternatives { margin: 0; padding-left: 1.5rem; white-space: pre-wrap; }
)page";

const char* const page_script = R"page('use strict';
const $ = id => document.getElementById(id);
const state = {languages: [], limit: 0, alternatives: 0, request: null, timer: 0, source: [], words: [], chosen: -1};

function option(code, name) {
  const element = document.createElement('option');
  element.value = code;
  element.textContent = name;
  return element;
}

const sources = () => state.languages.filter(language => language.targets.length > 0);

// Lists the target languages of the chosen source language, all of them for "auto".
function fillTargets(wanted) {
  const codes = new Set();
  for (const language of sources())
    if ($('source').value === 'auto' || $('source').value === language.code) language.targets.forEach(code => codes.add(code));
  $('target').replaceChildren(...state.languages.filter(language => codes.has(language.code))
    .map(language => option(language.code, language.name)));
  if (codes.has(wanted)) $('target').value = wanted;
  const back = sources().find(language => language.code === $('target').value);
  $('swap').disabled = !(back && back.targets.includes($('source').value));
}

function showError(message) {
  $('error').textContent = message;
}

// Copies the source behind the text field, and marks the words that a word of the translation is aligned with.
function mirror(marked) {
  const text = $('text').value;
  if (state.source.join('') !== text) return $('mirror').replaceChildren(text + '\n');
  $('mirror').replaceChildren(...state.source.flatMap((piece, i) => {
    if (!marked.has(i)) return [piece];
    const space = piece.length - piece.trimStart().length;
    const mark = document.createElement('mark');
    mark.textContent = piece.slice(space);
    return [piece.slice(0, space), mark];
  }), '\n');
  $('mirror').scrollTop = $('text').scrollTop;
}

function choose(index) {
  const spans = $('output').querySelectorAll('.word');
  spans.forEach((span, i) => {
    span.classList.toggle('on', i === index);
    span.tabIndex = i === (index < 0 ? 0 : index) ? 0 : -1;
  });
  state.chosen = index;
  const word = state.words[index];
  mirror(new Set(word ? word.source : []));
  if (!word) return void ($('word').textContent = '');
  const from = word.source.map(i => (state.source[i] || '').trim()).filter(text => text).join(' ');
  const sure = word.confidence === null ? '' : ` ${Math.round(100 * word.confidence)} % sure`;
  $('word').textContent = `\u201c${word.text.trim()}\u201d${sure}${from ? `, from \u201c${from}\u201d` : ''}`;
}

function level(confidence) {
  if (confidence === null) return 'c3';
  return confidence < .4 ? 'c0' : confidence < .6 ? 'c1' : confidence < .8 ? 'c2' : 'c3';
}

function showWords(details) {
  state.source = details.source;
  state.words = details.target;
  $('output').replaceChildren(...details.target.flatMap((word, i) => {
    const space = word.text.length - word.text.trimStart().length;
    const span = document.createElement('span');
    span.className = `word ${level(word.confidence)}`;
    span.textContent = word.text.slice(space);
    span.tabIndex = i === 0 ? 0 : -1;
    span.addEventListener('mouseenter', () => choose(i));
    span.addEventListener('mouseleave', () => choose(-1));
    span.addEventListener('focus', () => choose(i));
    return [word.text.slice(0, space), span];
  }));
}

function showAlternatives(texts) {
  $('alternatives').replaceChildren(...texts.map(text => {
    const item = document.createElement('li');
    item.textContent = text;
    return item;
  }));
  $('others').hidden = texts.length === 0;
}

function show(answer) {
  const details = answer.details;
  if (details && details.target.length > 0) {
    showWords(details);
  } else {
    state.source = state.words = [];
    $('output').textContent = answer.translatedText;
  }
  $('legend').hidden = state.words.length === 0;
  showAlternatives(answer.alternatives || []);
  $('word').textContent = answer.detectedLanguage ? `Detected: ${answer.detectedLanguage.language}` : '';
  mirror(new Set());
}

// Parses server-sent events: the browser's own EventSource supports only GET.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    waiting += value;
    for (let end; (end = waiting.indexOf('\n\n')) >= 0; waiting = waiting.slice(end + 2)) {
      const event = {};
      for (const line of waiting.slice(0, end).split('\n')) {
        const colon = line.indexOf(': ');
        event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      yield event;
    }
  }
}

async function ask(text, signal) {
  const body = {q: text, source: $('source').value, target: $('target').value, format: $('format').value,
    alternatives: state.alternatives, details: true, stream: true};
  if ($('key').value) body.api_key = $('key').value;
  const response = await fetch('translate', {method: 'POST', signal, body: JSON.stringify(body),
    headers: {'Content-Type': 'application/json'}});
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error || `the server answered ${response.status}`);
  }
  for await (const event of events(response.body)) {
    const data = JSON.parse(event.data);
    if (event.event === 'partial') $('output').textContent = data.text;
    if (event.event === 'error') throw new Error(data.error);
    if (event.event === 'done') return show(data);
  }
  throw new Error('the connection ended before the translation did');
}

async function translate() {
  clearTimeout(state.timer);
  if (state.request) state.request.abort();
  const request = state.request = new AbortController();
  const text = $('text').value;
  showError('');
  if (text.trim() === '') return show({translatedText: ''});
  $('output').setAttribute('aria-busy', 'true');
  try {
    await ask(text, request.signal);
  } catch (error) {
    if (request.signal.aborted) return;
    showError(`Not translated: ${error.message}`);
  }
  if (request === state.request) $('output').setAttribute('aria-busy', 'false');
}

function changed() {
  const count = [...$('text').value].length;
  $('count').textContent = `${count} of ${state.limit} characters`;
  mirror(new Set());
  clearTimeout(state.timer);
  state.timer = setTimeout(translate, 400);
}

function moveAlong(event) {
  const step = {ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity}[event.key];
  const spans = $('output').querySelectorAll('.word');
  if (step === undefined || spans.length === 0) return;
  event.preventDefault();
  spans[Math.min(spans.length - 1, Math.max(0, state.chosen + step))].focus();
}

async function start() {
  const get = async path => (await fetch(path)).json();
  const [languages, settings] = await Promise.all([get('languages'), get('frontend/settings')]);
  state.languages = languages;
  state.limit = settings.charLimit;
  state.alternatives = Math.min(3, settings.maxAlternatives);
  $('key-label').hidden = !settings.keyRequired;
  $('source').replaceChildren(...sources().map(language => option(language.code, language.name)));
  if (sources().length > 1) $('source').prepend(option('auto', 'detect'));
  const asked = new URLSearchParams(location.search);
  $('source').value = asked.get('source') || settings.language.source.code;
  if ($('source').selectedIndex < 0) $('source').selectedIndex = 0;
  fillTargets(asked.get('target') || settings.language.target.code);
  $('source').addEventListener('change', () => { fillTargets($('target').value); changed(); });
  $('target').addEventListener('change', () => { fillTargets($('target').value); changed(); });
  $('format').addEventListener('change', changed);
  $('text').addEventListener('input', changed);
  $('text').addEventListener('scroll', () => { $('mirror').scrollTop = $('text').scrollTop; });
  $('output').addEventListener('keydown', moveAlong);
  $('output').addEventListener('focusout', () => choose(-1));
  $('form').addEventListener('submit', event => { event.preventDefault(); translate(); });
  $('text').addEventListener('keydown', event => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    translate();
  });
  $('swap').addEventListener('click', () => {
    const [from, to, text] = [$('source').value, $('target').value, $('output').textContent];
    $('source').value = to;
    fillTargets(from);
    $('text').value = text;
    changed();
  });
  $('copy').addEventListener('click', async () => {
    // Browsers offer the clipboard to https and to this machine alone; elsewhere the text is marked, to be copied by hand.
    try {
      await navigator.clipboard.writeText($('output').textContent);
      $('word').textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren($('output'));
      $('word').textContent = document.execCommand('copy') ? 'Copied' : 'Marked: press Ctrl+C to copy';
    }
  });
  changed();
  if (asked.has('q')) {
    $('text').value = asked.get('q');
    changed();
    translate();
  }
}

start().catch(error => showError(`The server does not answer: ${error.message}`));
)page";

}  // namespace eigenformer::detail
