#include "tests/simulated_device/clocks.h"

#include <algorithm>
#include <sstream>

namespace pareprop::testing {

void VectorClock::join(const VectorClock& other) {
  for (std::size_t i = 0; i < times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

bool VectorClock::covers(const VectorClock& other) const {
  for (std::size_t i = 0; i < times_.size(); ++i) {
    if (times_[i] < other.times_[i]) return false;
  }
  return true;
}

std::string Access::text() const {
  std::ostringstream out;
  out << schema->name();
  if (!schema->overload_name().empty()) out << '.' << schema->overload_name();
  if (argument >= 0) {
    out << " (argument '" << schema->arguments()[static_cast<std::size_t>(argument)].name() << "'";
  } else {
    out << " (its result";
    if (schema->returns().size() > 1) out << ' ' << -1 - argument;
  }
  out << ": " << c10::toString(dtype) << " [";
  for (std::size_t i = 0; i < sizes.size(); ++i) out << (i == 0 ? "" : ", ") << sizes[i];
  out << "]) on stream " << actor % SimulatedDevice::kStreams
      << " of simulated:" << actor / SimulatedDevice::kStreams;
  return out.str();
}

std::optional<std::string> History::add(Access access, const VectorClock& now) {
  std::optional<std::string> race;
  for (const Access& earlier : accesses_) {
    const bool apart = earlier.end <= access.begin || access.end <= earlier.begin;
    const bool conflict = earlier.former || earlier.write || access.write;
    if (apart || !conflict || earlier.time <= now[earlier.actor]) continue;
    race = "race: " + access.text() + (access.write ? " writes" : " reads") + " memory that " +
           earlier.text() + (earlier.write ? " wrote" : " read") +
           (earlier.former ? " for a tensor that is freed since" : "") +
           ", and no event orders the one after the other";
    break;
  }
  // What comes after this one comes after those that it hides.
  std::erase_if(accesses_, [&](const Access& earlier) {
    const bool inside = access.begin <= earlier.begin && earlier.end <= access.end;
    return inside &&
           (access.write || (!earlier.write && !earlier.former && earlier.actor == access.actor));
  });
  accesses_.push_back(std::move(access));
  return race;
}

void History::free() {
  for (Access& access : accesses_) access.former = true;
}

const Access* History::after(const VectorClock& now) const {
  const auto found = std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& access) {
    return access.time > now[access.actor];
  });
  return found == accesses_.end() ? nullptr : &*found;
}

}  // namespace pareprop::testing
