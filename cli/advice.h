#pragma once

#include <string>

#include "pareprop/device/torch_error.h"

namespace CLI {
class App;
}

namespace pareprop::cli {

// What the command could be told to avoid the fault, to be put behind the message: "; to need less
// memory, use a smaller --batch". Only of flags that the command has; empty: there is none.
std::string advice(Fault fault, const CLI::App& command);

}  // namespace pareprop::cli
