#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/models/overrides.h"
#include "pareprop/ops/precision.h"
#include "pareprop/reversible/stream_arithmetic.h"

namespace pareprop::sweep {

// One network and one batch on a device, or on so many threads of the CPU, trained in several modes
// that take turns.
struct Case {
  std::string model;
  models::Overrides change = {};
  std::int64_t batch = 4;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  int threads = 1;
  c10::Device device = at::kCPU;
  std::uint64_t seed = 0;
  std::vector<Mode> modes = {};
  std::vector<std::int64_t> budgets = {};  // bytes, each one more row in mode `auto`

  // All but modes and budgets in words: "vit_tiny, depth 4, batch 8, fp32, 2 threads". Equal words
  // are the same case.
  std::string name() const;
};

// Lists that are crossed with each other. An empty one leaves what the model has.
struct Grid {
  std::vector<std::string> models = {"vit_tiny"};
  std::vector<std::vector<int>> depths = {};  // each: of every stage, or one for each
  std::vector<std::int64_t> image_sizes = {};
  std::vector<std::int64_t> seq_lens = {};
  std::vector<std::int64_t> batches = {4};
  std::vector<Precision> precisions = {Precision::fp32};
  std::vector<int> threads = {0};  // 0: all
  std::vector<Mode> modes = {};    // empty: all that the network can be trained in
  std::vector<std::int64_t> budgets = {};
  models::Overrides change = {};  // of every case; depths, image_size and length are not used
  Arithmetic arithmetic = Arithmetic::floating;
  std::uint64_t seed = 0;
};

struct Sweep {
  int rounds = 5;  // turns of each mode
  int steps = 2;   // of a turn
  c10::Device device = at::kCPU;
  std::vector<Grid> rows = {};
};

// The cases in the order they are run. Where rows have the same case, it is there once with the
// modes and budgets of all. `all_threads` is what 0 threads stand for. Throws std::invalid_argument
// for numbers out of their range and for sweeps without a case; names of models are not checked.
std::vector<Case> cases_of(const Sweep& sweep, int all_threads);

// "vit" of "vit_tiny".
std::string family_of(const std::string& model);

}  // namespace pareprop::sweep
