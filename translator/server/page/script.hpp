#pragma once

namespace eigenformer {

/// The script of the page, page.js: reads /languages and /frontend/settings, and requests a stream from
/// /translate whenever the text has changed.
inline constexpr const char* page_script = R"page('use strict';
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
    await navigator.clipboard.writeText($('output').textContent);
    $('word').textContent = 'Copied';
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

}  // namespace eigenformer
