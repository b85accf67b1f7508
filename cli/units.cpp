#include "cli/units.h"

namespace pareprop::cli {

std::string yes_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace pareprop::cli
