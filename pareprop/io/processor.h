#pragma once

#include <string>

namespace pareprop::io {

// As the system calls it: "AMD EPYC 7B13"; "unknown processor" where it does not say.
std::string processor_name();

}  // namespace pareprop::io
