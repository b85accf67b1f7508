#include "pareprop/data/prefetch.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace pareprop::data {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("prefetching: " + what);
}

std::runtime_error out_of_memory(std::int64_t number) {
  return std::runtime_error("out of memory while batch " + std::to_string(number) +
                            " was made; use a smaller batch or fewer workers");
}

[[noreturn]] void rethrow(const std::exception_ptr& error, std::int64_t number) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    throw out_of_memory(number);
  } catch (const c10::OutOfMemoryError&) {
    throw out_of_memory(number);
  }
}

}  // namespace

Prefetcher::Prefetcher(std::shared_ptr<const Batches> batches, const PrefetchOptions& options)
    : batches_(std::move(batches)),
      options_(options),
      number_(options.first),
      taken_(options.first),
      begun_(options.first) {
  require(batches_ != nullptr, "there are no batches to make");
  require(options.workers >= 0 && options.workers <= kMostWorkers,
          "there are " + std::to_string(options.workers) + " workers; expected 0 (none) to " +
              std::to_string(kMostWorkers));
  require(options.ahead >= 1,
          "expected 1 or more batches ahead, got " + std::to_string(options.ahead));
  require(options.first >= 0 && options.first <= options.end,
          "the first batch is " + std::to_string(options.first) + ", the end " +
              std::to_string(options.end) + "; expected 0 <= first <= end");
  // More would have nothing to do.
  const int threads = std::min(options.workers, options.ahead);
  threads_.reserve(static_cast<std::size_t>(threads));
  try {
    for (int t = 0; t < threads; ++t) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    end_threads();
    throw std::runtime_error("only " + std::to_string(started) + " of " + std::to_string(threads) +
                             " threads that make batches could be started (" +
                             error.code().message() + "); use fewer workers");
  } catch (...) {
    end_threads();
    throw;
  }
}

Prefetcher::~Prefetcher() { end_threads(); }

void Prefetcher::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Nothing may be thrown out of a thread: it would end the process.
void Prefetcher::work() {
  try {
    make_batches();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
    ready_.notify_one();
  }
}

void Prefetcher::make_batches() {
  // The first call makes torch set this thread's count, which would otherwise undo the second.
  at::get_num_threads();
  omp_set_num_threads(1);
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(
        lock, [&] { return stop_ || (begun_ < options_.end && begun_ - taken_ < options_.ahead); });
    if (stop_) return;
    const std::int64_t number = begun_++;
    lock.unlock();
    Made made = make(number);
    lock.lock();
    made_.emplace(number, std::move(made));
    ready_.notify_one();
  }
}

Prefetcher::Made Prefetcher::make(std::int64_t number) const {
  try {
    return {batches_->make(number), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

Prefetcher::Made Prefetcher::take() {
  if (threads_.empty()) return make(number_ - 1);
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return made_.contains(taken_) || failed_ != nullptr; });
  if (!made_.contains(taken_)) return {{}, failed_};
  Made made = std::move(made_.extract(taken_).mapped());
  ++taken_;
  wanted_.notify_one();
  return made;
}

Batch Prefetcher::next() {
  if (number_ >= options_.end) {
    throw std::out_of_range("prefetching: batch " + std::to_string(number_) +
                            " was asked for; the last is " + std::to_string(options_.end - 1));
  }
  struct Clock {
    double& seconds;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    ~Clock() {
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
  } const clock{waited_seconds_};
  ++number_;
  Made made = take();
  if (made.error != nullptr) rethrow(made.error, number_ - 1);
  return std::move(made.batch);
}

}  // namespace pareprop::data
