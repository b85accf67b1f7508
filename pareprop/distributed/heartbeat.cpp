#include "pareprop/distributed/heartbeat.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "pareprop/distributed/call_within.h"
#include "pareprop/text/fixed.h"

namespace pareprop::distributed {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kBlamed = "blamed";
constexpr const char* kMissing = "missing";
constexpr const char* kLeft = "left";

// For answers of the store besides what is waited for. A store that only runs on a busy machine
// answers within it.
constexpr milliseconds kPatience{4000};
// For the thread to notice that it is to end.
constexpr milliseconds kStopping{1000};

// Of what another process said: longer is no sentence of ours.
constexpr std::size_t kLongestBlame = 500;

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

// Many for a process that is only slow, and still soon enough.
milliseconds interval_for(milliseconds timeout) {
  return std::clamp(timeout / 10, milliseconds(50), milliseconds(1000));
}

}  // namespace

class Heartbeat::Shared {
 public:
  Shared(c10::intrusive_ptr<c10d::Store> store, int rank, int world, milliseconds timeout)
      : store_(std::move(store)),
        rank_(rank),
        world_(world),
        timeout_(timeout),
        interval_(interval_for(timeout)) {}

  milliseconds interval() const { return interval_; }
  void count_operation() { ++operations_; }

  // Whoever gives up first decides who is missing, and all say the same.
  void meet() {
    send(*store_);
    std::vector<int> missing;
    std::string decided;
    const auto end = Clock::now() + timeout_;
    try {
      while (!come_within(std::min(interval_, until(end)))) {
        missing = those_missing();
        if (missing.empty()) return;
        if (store_->check({kMissing})) decided = store_->get_to_str(kMissing);
        if (decided.empty() && Clock::now() >= end) decided = give_up(missing);
        if (decided.empty()) continue;
        // The store goes with rank 0, and the others ask once in an interval.
        if (rank_ == 0) std::this_thread::sleep_for(2 * interval_);
        break;
      }
    } catch (const std::exception&) {
      decided = (missing.empty() ? "" : list(missing) + " did not join, and ") +
                "the store that all processes share is gone: rank 0 or torchrun, which served it, "
                "has stopped";
    }
    if (!decided.empty()) {
      throw std::runtime_error(decided.substr(0, kLongestBlame) +
                               ": see the messages there, and start all processes again");
    }
  }

  void beat_until_stopped() {
    c10::intrusive_ptr<c10d::Store> own;
    std::unique_lock lock(mutex_);
    for (auto last = Clock::now(); !wake_.wait_for(lock, interval_, [this] { return stopping_; });
         last = Clock::now()) {
      note_pause(last, Clock::now());
      lock.unlock();
      try {
        // A connection of its own: an operation on the other one may wait.
        if (own == nullptr) own = store_->clone();
        send(*own);
      } catch (const std::exception&) {
        // Out of memory: the next beat may succeed. The store is gone: the next operation of the
        // group will fail and say so.
      }
      lock.lock();
    }
    ended_ = true;
    wake_.notify_all();
  }

  // True: the thread has ended.
  bool stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    return wake_.wait_for(lock, kStopping, [this] { return ended_; });
  }

  std::string blame() {
    if (store_->check({kBlamed})) return store_->get_to_str(kBlamed);
    const std::string found = find_culprit();
    // Whoever is first decides: those who ask later would find the first ones gone as well.
    const std::string decided = store_->compareSet(kBlamed, "", found);
    // The store goes with rank 0, and others may be about to ask.
    if (rank_ == 0) std::this_thread::sleep_for(interval_);
    return decided.empty() ? found : decided;
  }

  void leave() {
    store_->add(kLeft, 1);
    for (int i = 0; rank_ == 0 && i < 40 && store_->add(kLeft, 0) < world_; ++i) {
      std::this_thread::sleep_for(interval_ / 10);
    }
  }

 private:
  struct Beat {
    std::int64_t number = 0;
    std::int64_t operations = 0;
  };

  static std::string key(int rank) { return "beat/" + std::to_string(rank); }

  static milliseconds until(Clock::time_point end) {
    return std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds(1));
  }

  // Whether all have come. False also where the store is gone: the next question finds out.
  bool come_within(milliseconds limit) {
    std::vector<std::string> keys;
    for (int other = 0; other < world_; ++other) keys.push_back(key(other));
    try {
      store_->wait(keys, limit);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  std::vector<int> those_missing() {
    std::vector<int> missing;
    for (int other = 0; other < world_; ++other) {
      if (!store_->check({key(other)})) missing.push_back(other);
    }
    return missing;
  }

  // What is said of them by all.
  std::string give_up(const std::vector<int>& missing) {
    const std::string found = list(missing) + " of " + std::to_string(world_) +
                              " did not join within " + std::to_string(timeout_.count()) + " ms";
    const std::string decided = store_->compareSet(kMissing, "", found);
    return decided.empty() ? found : decided;
  }

  void send(c10d::Store& store) {
    store.set(key(rank_), std::to_string(++sent_) + " " + std::to_string(operations_.load()));
  }

  // With mutex_. A process that was stopped finds that the others have given it up.
  void note_pause(Clock::time_point begin, Clock::time_point end) {
    if (end - begin > timeout_) pause_ = {begin, end};
  }

  // Seconds of one that can be why an operation fails now; 0: none.
  double recent_pause() {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - pause_.end > timeout_ + kPatience) return 0.0;
    return std::chrono::duration<double>(pause_.end - pause_.begin).count();
  }

  std::vector<Beat> beats() {
    std::vector<Beat> all;
    for (int other = 0; other < world_; ++other) {
      std::istringstream text(store_->get_to_str(key(other)));
      Beat beat;
      text >> beat.number >> beat.operations;
      all.push_back(beat);
    }
    return all;
  }

  std::string find_culprit() {
    const auto before = beats();
    std::this_thread::sleep_for(3 * interval_);
    const auto after = beats();
    if (const double seconds = recent_pause(); seconds > 0.0) {
      return list({rank_}) + " was suspended for " + text::fixed(seconds, 0) +
             " s (by Ctrl-Z or SIGSTOP), longer than the timeout";
    }
    std::vector<int> stopped, behind;
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (const Beat& beat : after) {
      fewest = std::min(fewest, beat.operations);
      most = std::max(most, beat.operations);
    }
    for (int other = 0; other < world_; ++other) {
      const auto at = static_cast<std::size_t>(other);
      if (other != rank_ && after[at].number == before[at].number) stopped.push_back(other);
      if (after[at].operations == fewest) behind.push_back(other);
    }
    if (!stopped.empty())
      return list(stopped) + (stopped.size() == 1 ? " has" : " have") + " stopped";
    if (fewest < most) {
      return list(behind) + (behind.size() == 1 ? " is" : " are") +
             " alive but did not respond within the timeout";
    }
    return "all processes are alive, but the connection between some of them failed";
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, world_;
  const milliseconds timeout_, interval_;
  std::atomic<std::int64_t> operations_ = 0;
  std::atomic<std::int64_t> sent_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  bool stopping_ = false, ended_ = false;
  struct {
    Clock::time_point begin, end;
  } pause_;  // the last one that was longer than the time-out
};

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                     milliseconds timeout)
    : shared_(std::make_shared<Shared>(std::move(store), rank, world, timeout)) {
  try {
    call_within(timeout + kPatience, [shared = shared_] { shared->meet(); });
  } catch (const NotInTime&) {
    throw std::runtime_error("rank " + std::to_string(rank) + " of " + std::to_string(world) +
                             ": the store that all processes share does not answer. Rank 0 or "
                             "torchrun, which serves it, has stopped: start all processes again");
  }
  thread_ = start_thread([shared = shared_] { shared->beat_until_stopped(); });
}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::stop() {
  if (!thread_.joinable()) return;
  if (shared_->stop()) {
    thread_.join();
  } else {
    thread_.detach();  // it waits for the store, and owns all that it uses
  }
}

void Heartbeat::count_operation() { shared_->count_operation(); }

std::string Heartbeat::blame() {
  try {
    const std::string who = call_within(4 * shared_->interval() + kPatience,
                                        [shared = shared_] { return shared->blame(); });
    return who.substr(0, kLongestBlame);
  } catch (const NotInTime&) {
    return "the store that all processes share does not answer: rank 0 or torchrun, which serves "
           "it, has stopped";
  } catch (const std::exception&) {
    return "the store that all processes share is gone: rank 0 or torchrun, which served it, has "
           "stopped";
  }
}

void Heartbeat::leave() {
  stop();
  try {
    call_within(4 * shared_->interval() + kPatience, [shared = shared_] { shared->leave(); });
  } catch (const std::exception&) {  // the store has left first
  }
}

}  // namespace pareprop::distributed
