#pragma once

namespace eigenformer {

/// The style of the page, page.css, for light and dark color schemes.
inline constexpr const char* page_style = R"page(:root {
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

}  // namespace eigenformer
