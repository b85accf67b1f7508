#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pareprop::testing {

// Note [The simulated device]
// An accelerator for machines without one, stricter than a real one: a race is an error every time,
// not a wrong number once a week. Linking it registers PrivateUse1 with torch, under the name
// "simulated", with two devices. Tensors, modules, autograd, autocast, streams, events, generators,
// pinned memory and the allocator's statistics work on it as on CUDA. docs/simulated-device.md is
// an introduction.
//
// Operators run at once, on the calling thread, by torch's CPU kernels on the device's memory,
// which is host memory. What is simulated is *order*: every stream and the host have a vector
// clock. An operator is one tick of the current stream. Event::record takes the
// stream's clock, Event::block adds it to another stream's; what waits on the host (synchronize,
// query, item, a copy to the CPU) adds a stream's clock to the host's, and every operator begins
// after what the host has waited for.
//
// Each block of memory knows which operators used which of its bytes since, and on which streams.
// These are races, reported by a Race that names both operators, tensors and streams:
//   - a read that is not ordered after the last write;
//   - a write that is not ordered after the last write and all reads since;
//   - any use of memory that the allocator has given to a new tensor, which is not ordered after
//     all uses of the one that had it before;
//   - a new tensor of a stream that is not ordered after all uses of tensors that the stream has
//     freed: another allocator might give it their memory, whatever their sizes.
// What an operator reads and writes is what its schema says. The bytes of a tensor are those from
// its first to its last element, so columns that different streams write count as the same bytes.
//
// The allocator has one pool a stream, as CUDA's: memory belongs to the stream that was current
// when it was allocated, and a new tensor of that stream gets the block of its size that was freed
// last, at once. After recordDataPtrOnStream it is free again only when the host has waited for
// what that stream had to do when the tensor went: the host of a real device may be so far ahead.
// New memory is NaN. A copy to pinned memory that does not block arrives when the host has waited
// for it; until then there is NaN too.
//
// Time is simulated for events only (set_operator_time): each operator takes a time of its stream,
// which is as far ahead of the host as it has work; who waits on the host sleeps until then.
class SimulatedDevice {
 public:
  static constexpr int kDevices = 2;
  static constexpr int kPool = 32;                     // streams of each of two priorities
  static constexpr int kStreams = 1 + 2 * kPool;       // id 0 is the default, then low, then high
  static constexpr int kActors = kDevices * kStreams;  // clocks besides the host's

  struct Counts {
    int host_waits = 0;  // synchronize and query, of streams, events and devices; blocking copies
    int host_reads = 0;  // values of the device that the host waited for: item, nonzero, copies
    int records = 0;     // of events
    int blocks = 0;      // streams that were made to wait for an event
    int recorded_memory = 0;  // recordDataPtrOnStream, on a stream that does not own the memory
    std::int64_t launches = 0;
  };

  static c10::Device device(int index = 0);

  static Counts counts();
  // Operators that ran since reset_counts(), by name: "aten::addmm.out".
  static std::map<std::string, std::int64_t> launches();
  // What was recorded on which stream by recordDataPtrOnStream.
  static std::vector<std::pair<const void*, c10::Stream>> recorded_memory();
  static void reset_counts();

  // Bytes of tensors, and of all blocks whether used or not; now and at most since reset_peaks().
  struct Memory {
    std::int64_t allocated = 0, reserved = 0;
    std::int64_t peak_allocated = 0, peak_reserved = 0;
  };
  static Memory memory(int device = 0);
  // The same as CUDA's allocator would count them: the device's statistics.
  static Memory as_cuda(int device = 0);
  static void reset_peaks();
  // Forgets free blocks, so that reserved bytes are those of tensors.
  static void empty_cache();

  // Whether all that `before` has to do now comes before what `after` is given next.
  static bool is_ordered(const c10::Stream& before, const c10::Stream& after);

  // Closures beside operators, for tests of executors: queued on the calling thread's current
  // stream of its current device and run in order on a thread of that stream, which waits for
  // events as the stream does. Operators do not wait for them.
  static void enqueue(std::function<void()> work);
  // Closures of all streams begin late by up to `most` microseconds, drawn from `seed`.
  static void set_delays(std::uint64_t seed, int most);
  // How long each operator takes on its stream from now on; at first 0. Events and waits on the
  // host follow.
  static void set_operator_time(std::chrono::microseconds time);
  // Waits until no stream has closures left, and lets the host know all that operators did. Not
  // counted as a host wait.
  static void finish();
};

// What is thrown at the operator that comes second, with a sentence that names both.
class Race : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Races are collected instead of thrown while it lives. One at a time.
class RaceCollector {
 public:
  RaceCollector();
  ~RaceCollector();
  RaceCollector(const RaceCollector&) = delete;
  RaceCollector& operator=(const RaceCollector&) = delete;

  std::vector<std::string> races() const;
};

// Leaves out one call of the device while it lives, as if the program had forgotten it: the
// `number`-th from now on, beginning with 0. One at a time.
class Mutation {
 public:
  enum class Kind {
    event_block,      // Event::block
    recorded_memory,  // recordDataPtrOnStream on a stream that does not own the memory
  };
  Mutation(Kind kind, int number);
  ~Mutation();
  Mutation(const Mutation&) = delete;
  Mutation& operator=(const Mutation&) = delete;

  // Whether there was such a call.
  bool happened() const;
};

// What is wrong with the device, with the errors that torch has for it on CUDA.
struct Fault {
  static constexpr std::int64_t kNever = -1;

  // After so many launches from now on every call fails: the device is lost.
  std::int64_t lost_after = kNever;
  // After so many launches others have taken all memory that is free.
  std::int64_t memory_taken_after = kNever;
  std::string missing_operator = {};  // "aten::gelu.out" has no kernel
  bool no_bfloat16 = false;           // no operator takes it
  bool no_device = false;             // none is found ..
  std::string why_no_device = {};     // .. and torch warns of this
};

// The device has this fault while it lives. One at a time.
class FaultScope {
 public:
  explicit FaultScope(Fault fault);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;
};

}  // namespace pareprop::testing
