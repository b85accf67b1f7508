#include "pareprop/train/heartbeat.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace pareprop::train {
namespace {

using std::chrono::milliseconds;

constexpr const char* kBlamed = "blamed";
constexpr const char* kLeft = "left";

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

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
                     milliseconds timeout)
    : store_(std::move(store)), rank_(rank), world_(world), interval_(interval_for(timeout)) {
  send(*store_);
  std::vector<std::string> keys;
  for (int other = 0; other < world_; ++other) keys.push_back(key(other));
  try {
    store_->wait(keys, timeout);
  } catch (const std::exception&) {
    std::vector<int> missing;
    for (int other = 0; other < world_; ++other) {
      if (!store_->check({key(other)})) missing.push_back(other);
    }
    throw std::runtime_error(list(missing) + " of " + std::to_string(world_) +
                             " did not come within " + std::to_string(timeout.count()) +
                             " ms: see what they said, and start all again");
  }
  thread_ = std::thread([this] { run(); });
}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::send(c10d::Store& store) {
  store.set(key(rank_), std::to_string(++sent_) + " " + std::to_string(operations_.load()));
}

void Heartbeat::run() {
  try {
    // A connection of its own: an operation on the other one may wait.
    const auto own = store_->clone();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, interval_, [this] { return stopping_; })) {
      lock.unlock();
      send(*own);
      lock.lock();
    }
  } catch (const std::exception&) {
    // The store is gone with the process that served it. The next operation will fail and say so.
  }
}

std::vector<Heartbeat::Beat> Heartbeat::beats() {
  std::vector<Beat> all;
  for (int other = 0; other < world_; ++other) {
    std::istringstream text(store_->get_to_str(key(other)));
    Beat beat;
    text >> beat.number >> beat.operations;
    all.push_back(beat);
  }
  return all;
}

std::string Heartbeat::find_culprit() {
  const auto before = beats();
  std::this_thread::sleep_for(3 * interval_);
  const auto after = beats();
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
           " alive but did not come within the time-out";
  }
  return "all processes are alive, but the connection between some of them failed";
}

std::string Heartbeat::blame() {
  try {
    if (store_->check({kBlamed})) return store_->get_to_str(kBlamed);
    const std::string found = find_culprit();
    // Whoever is first decides: those who ask later would find the first ones gone as well.
    const std::string decided = store_->compareSet(kBlamed, "", found);
    // The store goes with rank 0, and others may be about to ask.
    if (rank_ == 0) std::this_thread::sleep_for(interval_);
    return decided.empty() ? found : decided;
  } catch (const std::exception&) {
    return "the store that all share is gone: rank 0, or torchrun, which served it, has stopped";
  }
}

void Heartbeat::leave() {
  stop();
  try {
    store_->add(kLeft, 1);
    for (int i = 0; rank_ == 0 && i < 40 && store_->add(kLeft, 0) < world_; ++i) {
      std::this_thread::sleep_for(interval_ / 10);
    }
  } catch (const std::exception&) {  // the store has left first
  }
}

}  // namespace pareprop::train
