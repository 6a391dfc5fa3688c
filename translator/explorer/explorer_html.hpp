#pragma once

namespace eigenformer::detail {

// The body of the explorer's page; the script fills it.
inline constexpr const char* explorer_html = R"page(<main>
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

}  // namespace eigenformer::detail
