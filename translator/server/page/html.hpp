#pragma once

namespace eigenformer {

/// The web page at /, which translates while the user types. It loads page.css and page.js, and nothing from
/// other hosts.
inline constexpr const char* page_html = R"page(<!doctype html>
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

}  // namespace eigenformer
