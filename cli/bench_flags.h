#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/sweep/sweep.h"

namespace CLI {
class App;
}

namespace pareprop::cli {

// What 'pareprop bench' was asked for: lists that are crossed, or a file of them.
struct BenchFlags {
  std::vector<std::string> models = {"vit_tiny"};
  std::vector<std::string> depths;  // "4", or "2+2+6+2" of stages
  std::vector<std::int64_t> image_sizes;
  std::vector<std::int64_t> seq_lens;
  std::vector<std::int64_t> batches = {4};
  std::vector<std::string> precisions = {"fp32"};
  std::vector<int> threads = {0};
  std::vector<std::string> modes;
  std::vector<std::string> budgets;
  models::Overrides change;
  bool exact = false;
  std::string device = "auto";
  std::uint64_t seed = 0;
  std::string sweep;
  std::optional<int> rounds;  // none: the sweep's
  std::optional<int> steps;
  std::string out;
  std::string json;
};

// `flags` must outlive the app.
void add_bench_flags(CLI::App& command, BenchFlags& flags);

// Throws std::invalid_argument naming what does not fit, std::runtime_error when the file of a
// sweep cannot be read.
sweep::Sweep sweep_of(const BenchFlags& flags);

}  // namespace pareprop::cli
