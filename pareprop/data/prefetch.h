#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pareprop/data/batches.h"

namespace pareprop::data {

inline constexpr int kMostWorkers = 1024;

struct PrefetchOptions {
  int workers = 2;         // threads that make batches; 0: next() makes them itself
  int ahead = 4;           // batches that are made or ready before they are asked for, at most
  std::int64_t first = 0;  // number of the first batch
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  // from this one on none is made
};

// Enough for `workers` threads to be busy.
inline int batches_ahead(int workers) { return workers < 2 ? 4 : 2 * workers; }

// Batches in order, made ahead by threads of its own; the same whatever their number. The threads
// compute with one core each. One caller at a time.
class Prefetcher {
 public:
  // Throws std::invalid_argument for options out of range, std::runtime_error when the system does
  // not give as many threads.
  explicit Prefetcher(std::shared_ptr<const Batches> batches, const PrefetchOptions& options = {});
  // Begins no further batch; waits for those that are just being made.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Throws what making the batch threw, also when a thread did, and then goes on with the one
  // after it; std::runtime_error when the memory did not suffice; std::out_of_range after the last.
  Batch next();

  // Number of the batch that next() will give.
  std::int64_t number() const { return number_; }
  // False after the last.
  bool has_next() const { return number_ < options_.end; }
  // Seconds that next() took in all: what training waited for data.
  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Made {
    Batch batch;
    std::exception_ptr error;
  };

  void work();
  void make_batches();
  Made make(std::int64_t number) const;
  Made take();
  void end_threads();

  std::shared_ptr<const Batches> batches_;
  PrefetchOptions options_;
  std::int64_t number_;
  double waited_seconds_ = 0.0;

  std::mutex mutex_;
  std::condition_variable wanted_, ready_;
  bool stop_ = false;
  std::int64_t taken_;  // what next() took: all below
  std::int64_t begun_;  // what workers began: all below
  std::map<std::int64_t, Made> made_;
  std::exception_ptr failed_;  // a thread that can make no more
  std::vector<std::thread> threads_;
};

}  // namespace pareprop::data
