#pragma once

#include <exception>
#include <string>

namespace pareprop {

// What an error says to people. What torch throws for the faults of a device becomes one line: that
// it is out of memory, was lost, or lacks an operator or a type, in torch's words as far as they
// matter, and what to do. Other errors of torch are without their backtrace.
std::string explained(const std::exception& error);

}  // namespace pareprop
