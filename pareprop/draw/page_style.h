#pragma once

#include <string_view>

namespace pareprop::draw {

// Of every page. Media queries come last, so that they win.
inline constexpr std::string_view kPageStyle = R"(
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
  summary { cursor: pointer; }
  @media (prefers-color-scheme: dark) {
    body { background: #0d1117; color: #e6edf3; }
    .note { background: #2b1d12; border-color: #ff8b3d; }
    .figures div, figure, th, td { border-color: #2a313c; }
    dt, .more, .quiet { color: #9198a1; }
  }
)";

}  // namespace pareprop::draw
