#pragma once

#include <string>
#include <string_view>

#include "pareprop/graph/task.h"

namespace pareprop {

// The style element of drawings of lanes, for readers with light or dark settings. A drawing may
// have rules of its own for either.
std::string lane_style(std::string_view light = "", std::string_view dark = "");

// Of a box, besides "box".
std::string_view css_class(TaskKind kind);

}  // namespace pareprop
