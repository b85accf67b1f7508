#pragma once

#include <string_view>

namespace pareprop::train {

// Media queries come last, so that they win.
inline constexpr std::string_view kPageStyle = R"(<style>
  * { box-sizing: border-box; }
  body { margin: 0 auto; padding: 1rem; max-width: 1240px; background: #ffffff; color: #1f2328;
         font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
  h1 { margin: .5rem 0 .25rem; font-size: 1.6rem; line-height: 1.25; }
  h2 { margin: 2rem 0 .75rem; font-size: 1.15rem; }
  p { margin: .25rem 0 .75rem; }
  .note { padding: .6rem .8rem; border-left: 4px solid #d55e00; background: #fff4ec; }
  .figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr));
             gap: .75rem; margin: 1rem 0; }
  .figures div { padding: .7rem .8rem; border: 1px solid #d8dee4; border-radius: 6px; }
  dt, .more, .quiet { color: #59636e; font-size: .85rem; }
  dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
  dd.more { font-size: .85rem; font-weight: 400; }
  .plots { display: grid; gap: .75rem;
           grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr)); }
  figure { margin: 0; padding: .25rem; border: 1px solid #d8dee4; border-radius: 6px; }
  figure svg { display: block; width: 100%; }
  table { border-collapse: collapse; width: 100%; }
  th, td { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #d8dee4; text-align: left;
           vertical-align: top; }
  .key { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
         font-size: .85rem; overflow-wrap: normal; }
  .value { min-width: 5rem; }
  .stacks td:nth-child(-n+2), .stacks th:nth-child(-n+2) { width: 6rem; }
  .chips { display: flex; flex-wrap: wrap; gap: 3px; margin: .3rem 0; }
  .chip { display: inline-block; min-width: 1.5rem; padding: 0 .3rem; border-radius: 3px;
          text-align: center; font-size: .8rem; font-weight: 600; }
  .store { background: #f7bd6a; }
  .checkpoint { background: #e3c1e8; }
  .anchor { background: #a3d9a0; }
  .reverse { background: #8ec7ee; }
  .policies { list-style: none; margin: .75rem 0; padding: 0; }
  .policies li { margin: .25rem 0; }
  summary { cursor: pointer; }
  .files { font-size: .85rem; }
  @media (max-width: 600px) {
    .stacks td:nth-child(-n+2), .stacks th:nth-child(-n+2) { width: auto; }
    .config thead { display: none; }
    .config tr { display: grid; grid-template-columns: 10rem 1fr; padding: .3rem 0;
                 border-bottom: 1px solid #d8dee4; }
    .config td { padding: 0; border: 0; }
    .config .quiet { grid-column: 1 / -1; }
  }
  @media (prefers-color-scheme: dark) {
    body { background: #0d1117; color: #e6edf3; }
    .note { background: #2b1d12; border-color: #ff8b3d; }
    .figures div, figure, th, td, .config tr { border-color: #2a313c; }
    dt, .more, .quiet { color: #9198a1; }
    .store { background: #8f5a10; }
    .checkpoint { background: #6f4177; }
    .anchor { background: #2c6e35; }
    .reverse { background: #1f5f8f; }
  }
</style>
)";

}  // namespace pareprop::train
