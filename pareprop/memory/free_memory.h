#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace pareprop::memory {

// Something that keeps this process from having more memory.
struct MemoryLimit {
  std::string name;  // "the memory of this machine", "the control group /a/b", "ulimit -v"
  std::int64_t free = std::numeric_limits<std::int64_t>::max();  // bytes that it leaves
  bool shared = true;  // with other processes of this machine
};

// Every limit that is set for this process: the machine's available memory, its control groups and
// theirs above (versions 1 and 2), and the address space and data that it may have (ulimit -v, -d).
// Files that can be dropped from memory count as free. `root` is the folder that holds proc/ and
// sys/. What cannot be read is no limit.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

// The limit that leaves least to one of `processes` that divide among them what they share.
MemoryLimit tightest(const std::vector<MemoryLimit>& limits, int processes = 1);

// Bytes that this process can still allocate: what the tightest limit leaves, and what the caching
// allocator keeps without using it. A very large number where there is no limit.
std::int64_t free_memory();

}  // namespace pareprop::memory
