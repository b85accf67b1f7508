#pragma once

#include <filesystem>

namespace pareprop::io {

// Removes what processes that were killed left of this file when they were writing it:
// "NAME.partial-PID-N" of AtomicFile, and "NAME.partial-PID". What a process is writing at this
// moment stays: the file is locked, or the process lives. Nothing that fails here is an error.
void remove_leftovers_of(const std::filesystem::path& file);

}  // namespace pareprop::io
