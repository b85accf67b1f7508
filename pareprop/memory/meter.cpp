#include "pareprop/memory/meter.h"

#include <atomic>

namespace pareprop::memory {
namespace {

// Note [The meter]
// Every counter is one atomic, so that what the live value was after each allocation is known to
// the thread that made it, and the peak, raised by compare-exchange, is the true maximum of these
// values. Total and activation are counters of their own: a sum of tags read one after the other
// would be the state of no moment. Nothing here has a constructor or destructor that runs, because
// tensors are made before main() and freed after it.
struct alignas(64) Gauge {
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> peak{0};

  void raise_peak(std::int64_t value) {
    std::int64_t seen = peak.load();
    while (seen < value && !peak.compare_exchange_weak(seen, value)) {
    }
  }

  void add(std::int64_t bytes) {
    const std::int64_t now = live.fetch_add(bytes) + bytes;
    if (bytes > 0) raise_peak(now);
  }

  void restore_peak(std::int64_t before) {
    peak.store(before);
    raise_peak(live.load());
  }

  // An allocation between the load and the store would be lost; the second look finds it.
  void reset_peak() {
    peak.store(live.load());
    raise_peak(live.load());
  }
};

struct Gauges {
  std::array<Gauge, kTags> tags{};
  Gauge total;
  Gauge activation;

  Gauge& of(Tag tag) { return tags[static_cast<std::size_t>(tag)]; }
};

constinit std::array<Gauges, 2> all_gauges{};
constinit thread_local Tag thread_tag = Tag::other;

Gauges& gauges(Counted what) { return all_gauges[static_cast<std::size_t>(what)]; }

bool is_activation(Tag tag) {
  return tag != Tag::parameters && tag != Tag::gradients && tag != Tag::optimizer;
}

}  // namespace

std::string_view name(Tag tag) {
  constexpr std::array<std::string_view, kTags> names = {"parameters", "gradients", "optimizer",
                                                         "streams",    "tape",      "other"};
  return names[static_cast<std::size_t>(tag)];
}

TagScope::TagScope(Tag tag) : previous_(thread_tag) { thread_tag = tag; }
TagScope::~TagScope() { thread_tag = previous_; }

Tag current_tag() { return thread_tag; }

Usage usage(Counted what) {
  const Gauges& all = gauges(what);
  Usage result;
  for (std::size_t i = 0; i < kTags; ++i) {
    result.live[i] = all.tags[i].live.load();
    result.peak[i] = all.tags[i].peak.load();
  }
  result.total_live = all.total.live.load();
  result.total_peak = all.total.peak.load();
  result.activation_live = all.activation.live.load();
  result.activation_peak = all.activation.peak.load();
  return result;
}

void reset_peaks(Counted what) {
  Gauges& all = gauges(what);
  for (Gauge& each : all.tags) each.reset_peak();
  all.total.reset_peak();
  all.activation.reset_peak();
}

PeaksKept::~PeaksKept() {
  Gauges& all = gauges(what_);
  for (std::size_t i = 0; i < kTags; ++i) all.tags[i].restore_peak(before_.peak[i]);
  all.total.restore_peak(before_.total_peak);
  all.activation.restore_peak(before_.activation_peak);
}

namespace detail {

void count(Counted what, Tag tag, std::int64_t bytes) {
  Gauges& all = gauges(what);
  all.of(tag).add(bytes);
  all.total.add(bytes);
  if (is_activation(tag)) all.activation.add(bytes);
}

void move(Counted what, Tag from, Tag to, std::int64_t bytes) {
  if (from == to) return;
  Gauges& all = gauges(what);
  all.of(from).add(-bytes);
  all.of(to).add(bytes);
  if (is_activation(from) && !is_activation(to)) all.activation.add(-bytes);
  if (!is_activation(from) && is_activation(to)) all.activation.add(bytes);
}

}  // namespace detail
}  // namespace pareprop::memory
