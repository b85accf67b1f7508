#include "pareprop/trace/lane_style.h"

namespace pareprop {
namespace {

constexpr std::string_view kLight =
    R"(  text { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328; }
  text.title { font: 600 15px system-ui, "DejaVu Sans", sans-serif; }
  text.word { font: 12px system-ui, "DejaVu Sans", sans-serif; }
  .paper { fill: #ffffff; }
  .lane { fill: #f0f2f5; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .box { stroke: #ffffff; stroke-width: 1; }
  .recover { fill: #8ec7ee; }
  .gradient { fill: #f7bd6a; }
  .weight { fill: #a3d9a0; }
  .update { fill: #e3d26f; }
)";

constexpr std::string_view kDark = R"(    text { fill: #e6edf3; }
    .paper { fill: #0d1117; }
    .lane { fill: #1b222c; }
    .grid { stroke: #3d444d; }
    .box { stroke: #0d1117; }
    .recover { fill: #1f5f8f; }
    .gradient { fill: #8f5a10; }
    .weight { fill: #2c6e35; }
    .update { fill: #6d6118; }
)";

}  // namespace

// Media queries come last, so that they win; readers that know none get the light colours.
std::string lane_style(std::string_view light, std::string_view dark) {
  std::string out = "<style>\n";
  out.append(kLight).append(light);
  out += "  @media (prefers-color-scheme: dark) {\n";
  out.append(kDark).append(dark);
  return out + "  }\n</style>\n";
}

std::string_view css_class(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return "recover";
    case TaskKind::gradient:
      return "gradient";
    case TaskKind::weight_gradient:
      return "weight";
    case TaskKind::update:
      return "update";
  }
  return "";
}

}  // namespace pareprop
