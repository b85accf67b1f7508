#pragma once

#include <string_view>

namespace pareprop::train {

// What the page of a run has besides draw::kPageStyle. Media queries come last, so that they win.
inline constexpr std::string_view kRunPageStyle = R"(
  .key { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
         font-size: .85rem; overflow-wrap: normal; }
  .value { min-width: 5rem; }
  .stacks td:nth-child(-n+2), .stacks th:nth-child(-n+2) { width: 6rem; }
  .chips { display: flex; flex-wrap: wrap; gap: 3px; margin: .3rem 0; }
  .chip { display: inline-block; min-width: 1.5rem; padding: 0 .3rem; border-radius: 3px;
          text-align: center; font-size: .8rem; font-weight: 600; }
  .store { background: #f7bd6a; }
  .products { background: #efe08a; }
  .checkpoint { background: #e3c1e8; }
  .anchor { background: #a3d9a0; }
  .reverse { background: #8ec7ee; }
  .policies { list-style: none; margin: .75rem 0; padding: 0; }
  .policies li { margin: .25rem 0; }
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
    .config tr { border-color: #2a313c; }
    .store { background: #8f5a10; }
    .products { background: #6d6210; }
    .checkpoint { background: #6f4177; }
    .anchor { background: #2c6e35; }
    .reverse { background: #1f5f8f; }
  }
)";

}  // namespace pareprop::train
