#pragma once

#include <cstdint>

namespace pareprop::testing {

// Counts operators that on an accelerator make the host wait for it, of all threads, while it
// lives: reading a value (item), looking for non-zero elements, comparing for equality. Copies to
// the host are not seen on the CPU. One at a time.
class HostReads {
 public:
  HostReads();
  ~HostReads();
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  std::int64_t count() const;

 private:
  std::uint64_t handle_;
};

}  // namespace pareprop::testing
