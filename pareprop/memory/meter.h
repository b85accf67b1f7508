#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pareprop::memory {

// What memory is used for. An allocation gets the current tag of the thread that makes it.
enum class Tag : std::uint8_t { parameters, gradients, optimizer, streams, tape, other };
inline constexpr std::size_t kTags = 6;

std::string_view name(Tag tag);

// Allocations of this thread get `tag` until the scope ends.
class TagScope {
 public:
  explicit TagScope(Tag tag);
  ~TagScope();
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;

 private:
  Tag previous_;
};

Tag current_tag();

// Requested bytes (not rounded up) of the installed allocator.
struct Usage {
  std::array<std::int64_t, kTags> live{};
  std::array<std::int64_t, kTags> peak{};  // the peak of each tag alone
  std::int64_t total_live = 0;
  std::int64_t total_peak = 0;
  std::int64_t activation_live = 0;  // all except parameters, gradients, optimizer
  std::int64_t activation_peak = 0;
  // What an accelerator's allocator takes from it for all that. Of the CPU 0.
  std::int64_t reserved_peak = 0;

  std::int64_t live_of(Tag tag) const { return live[static_cast<std::size_t>(tag)]; }
  std::int64_t peak_of(Tag tag) const { return peak[static_cast<std::size_t>(tag)]; }
};

// Which memory is counted: memory of the CPU, or what tensors of the meta device would take
// (meta_meter.h). The counts are separate, so that one step can be planned while another runs.
enum class Counted : std::uint8_t { cpu, meta };

// Counters of the whole process. Thread-safe. Zero until the allocator is installed
// (memory/caching_allocator.h).
Usage usage(Counted what = Counted::cpu);
void reset_peaks(Counted what = Counted::cpu);

// Its destructor restores the peaks that its constructor saw, or what is live now where that is
// more, so that temporary memory in between does not count. REQUIRES: no other thread allocates.
class PeaksKept {
 public:
  explicit PeaksKept(Counted what = Counted::cpu) : what_(what), before_(usage(what)) {}
  ~PeaksKept();
  PeaksKept(const PeaksKept&) = delete;
  PeaksKept& operator=(const PeaksKept&) = delete;

 private:
  const Counted what_;
  const Usage before_;
};

namespace detail {
void count(Counted what, Tag tag, std::int64_t bytes);  // negative bytes: released
// Live bytes change their tag. Not two calls of count(): the total, which does not change, would
// have a peak or a dip that never was.
void move(Counted what, Tag from, Tag to, std::int64_t bytes);
}  // namespace detail

}  // namespace pareprop::memory
