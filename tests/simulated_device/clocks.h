#pragma once

#include <ATen/core/function_schema.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulated_device/simulated_device.h"

namespace pareprop::testing {

// How many operators of each stream come before a point of the program. Streams are numbered over
// both devices (actor_of in machine.h).
class VectorClock {
 public:
  std::uint64_t operator[](int actor) const { return times_[static_cast<std::size_t>(actor)]; }
  std::uint64_t tick(int actor) { return ++times_[static_cast<std::size_t>(actor)]; }
  void join(const VectorClock& other);
  bool covers(const VectorClock& other) const;

 private:
  std::array<std::uint64_t, SimulatedDevice::kActors> times_{};
};

// What one operator does with the bytes of one tensor.
struct Access {
  const c10::FunctionSchema* schema = nullptr;
  int argument = 0;  // of the schema; negative: -1 - i is return value i
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::int64_t begin = 0, end = 0;  // bytes of the block
  bool write = false;
  int actor = 0;           // the stream it ran on ...
  std::uint64_t time = 0;  // ... and when, by the stream's own clock
  bool former = false;     // by a tensor that the allocator has freed since

  // "aten::add.out (argument 'self': Float [3, 5]) on stream 33 of simulated:0".
  std::string text() const;
};

// The uses of one block of memory that a later use may have to be ordered after.
class History {
 public:
  // Adds a use by a stream with clock `now`. A sentence if it races with an earlier one.
  std::optional<std::string> add(Access access, const VectorClock& now);
  // The tensor is freed: from now on every use conflicts with those that there were.
  void free();
  // A use that `now` does not come after. Null: none.
  const Access* after(const VectorClock& now) const;

 private:
  std::vector<Access> accesses_;
};

}  // namespace pareprop::testing
