#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/ops/deferred_gradients.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/branch.h"

namespace pareprop {

// Everything that makes a branch compute the same again. Kept per call, never in the module, so
// that several calls may be under way.
struct BranchSetting {
  const Branch* branch = nullptr;
  std::string where;  // "block 3, branch F": begins every message
  RandomKey random_key = {};
  AutocastState autocast = {};
  bool any_shape = false;  // the output need not have the shape of the input
};

// What one branch recorded for its gradient. The output itself is not part of it: once it was added
// to the stream nobody reads it, and a tape that held it would be one stream tensor larger.
struct Tape {
  at::Tensor input;  // a leaf of the graph
  torch::autograd::Edge
      root;  // where the gradient of the output enters; invalid: it depends on nothing
  std::vector<torch::autograd::Edge> leaves = {};  // of TapeOptions::own_leaves

  bool recorded() const { return input.defined(); }
};

struct TapeGradients {
  at::Tensor input;
  std::vector<at::Tensor> others;  // in the order asked for; undefined: not reached
};

// Runs the branch without a graph.
at::Tensor run_branch(const BranchSetting& setting, const at::Tensor& x,
                      const std::vector<at::Tensor>& extras);

struct TapeOptions {
  bool output_needed = true;  // as in BranchCall
  bool lean = false;          // keeps only what LeanTapeScope says
  // Leaves, all that tape_gradients() will be asked for, that get ends of this tape's own: Note
  // [Ends of a tape].
  std::vector<at::Tensor> own_leaves = {};
};

// Note [Ends of a tape]
// A graph ends in the accumulator of each leaf, one for all graphs, which belongs to the stream
// that was current when it was made: the caller's. Autograd makes whoever computes a gradient for
// it wait for that stream, and so for the recovery that should run beside. A tape that is recorded
// on a lane of an accelerator therefore gets accumulators of its own, of the lane's stream. Nothing
// is accumulated in them: its gradients are taken where they arrive.

// Runs the branch with a graph, and returns the output without. `extras` that need gradients must
// be leaves.
std::pair<Tape, at::Tensor> record_tape(const BranchSetting& setting, const at::Tensor& x,
                                        const std::vector<at::Tensor>& extras,
                                        const TapeOptions& options = {});

// Throws std::logic_error when the tape uses a leaf that requires gradient and is not in `known`.
void check_no_unknown_leaf(const BranchSetting& setting, const Tape& tape,
                           const std::vector<at::Tensor>& known);

// Gradients of the tape's input and of `others` (leaves) for `dy`, the gradient of its output.
// Weight gradients of ops that can wait go to `deferred`, if given. With `keep` the tape can be
// used again.
TapeGradients tape_gradients(const Tape& tape, const at::Tensor& dy,
                             const std::vector<at::Tensor>& others, DeferredGradients* deferred,
                             bool keep);

}  // namespace pareprop
