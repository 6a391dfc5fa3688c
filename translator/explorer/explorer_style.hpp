#pragma once

namespace eigenformer::detail {

// The style of the explorer's page, in light and in dark.
inline constexpr const char* explorer_style = R"page(:root {
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

}  // namespace eigenformer::detail
