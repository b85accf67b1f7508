#pragma once

#include <string>

#include "pareprop/text/units.h"

// Numbers as people read them, the same in every locale.
namespace pareprop::cli {

using text::bytes_text;
using text::count_text;
using text::error_text;
using text::percent_text;

inline std::string yes_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace pareprop::cli
