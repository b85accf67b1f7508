#include "pareprop/train/config_agreement.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

namespace pareprop::train {
namespace {

// Gradients are summed over all processes, so that weights stay the same however each of them
// computes its share: machines may have more or less memory and cores (mode, budget, force,
// workers). Only rank 0 writes (keep, log_every, trace). Each process waits by its own clock
// (timeout).
constexpr const char* kMayDiffer[] = {"mode",    "budget", "force",     "workers",
                                      "timeout", "keep",   "log_every", "trace"};

// Of the text of a configuration that another process sends; one of ours has 2 KB and its paths.
constexpr std::int64_t kLongestConfig = 1 << 20;
constexpr std::size_t kLongestValue = 200;

bool may_differ(const std::string& key) {
  return std::find(std::begin(kMayDiffer), std::end(kMayDiffer), key) != std::end(kMayDiffer);
}

// Rank `from`'s, in all processes.
std::string broadcast_text(const std::string& own, int from, distributed::ProcessGroup& group) {
  const at::Tensor size = at::tensor({static_cast<std::int64_t>(own.size())}, at::kLong);
  group.broadcast(size, from)->wait();
  const auto length = size.item<std::int64_t>();
  if (length < 0 || length > kLongestConfig) {
    throw std::invalid_argument("rank " + std::to_string(from) + " sends a configuration of " +
                                std::to_string(length) + " bytes, expected at most " +
                                std::to_string(kLongestConfig));
  }
  const at::Tensor bytes = at::zeros({length}, at::kByte);
  if (group.rank() == from) std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  group.broadcast(bytes, from)->wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(length)};
}

std::string shown(const std::string& value) {
  if (value.empty()) return "none";
  return value.size() <= kLongestValue ? value : value.substr(0, kLongestValue) + "...";
}

// What differs between this process and rank 0; empty: nothing that matters.
std::string difference(const TrainConfig& own, const std::string& json_of_first, int rank) {
  const std::string name = "rank " + std::to_string(rank);
  TrainConfig first;
  try {
    apply_json(first, json_of_first, "rank 0");
  } catch (const std::exception& error) {
    return name + " cannot read the configuration of rank 0 (" + shown(error.what()) +
           "): expected the same version of this program in all processes";
  }
  const auto mine = fields(own), theirs = fields(first);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].value == theirs[i].value || may_differ(mine[i].key)) continue;
    return name + " has " + flag_name(mine[i].key) + " " + shown(mine[i].value) + ", rank 0 has " +
           shown(theirs[i].value) +
           ": start all processes with the same flags and configuration file";
  }
  return {};
}

}  // namespace

void check_same_config(const TrainConfig& config, distributed::ProcessGroup& group) {
  if (group.world() == 1) return;
  const std::string first = broadcast_text(to_json(config), 0, group);
  const std::string own = difference(config, first, group.rank());
  // All learn who differs, so that all can say what it says, and none waits for one that has left.
  const at::Tensor differs = at::zeros({group.world()}, at::kLong);
  differs.mutable_data_ptr<std::int64_t>()[group.rank()] = own.empty() ? 0 : 1;
  group.all_reduce(differs)->wait();
  const std::int64_t* const begin = differs.const_data_ptr<std::int64_t>();
  const std::int64_t* const found =
      std::find_if(begin, begin + group.world(), [](std::int64_t one) { return one != 0; });
  if (found == begin + group.world()) return;
  throw std::invalid_argument(broadcast_text(own, static_cast<int>(found - begin), group));
}

}  // namespace pareprop::train
