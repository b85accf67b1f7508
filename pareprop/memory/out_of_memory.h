#pragma once

#include <cstddef>

namespace pareprop::memory {

// Throws c10::OutOfMemoryError for a tensor of `bytes`: what was asked for, what is live by tag,
// what limits this process, and what would help.
[[noreturn]] void throw_out_of_memory(std::size_t bytes);

}  // namespace pareprop::memory
