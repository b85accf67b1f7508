#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/graph/schedule.h"
#include "pareprop/graph/timeline.h"
#include "pareprop/lanes/executor.h"
#include "pareprop/ops/precision.h"
#include "pareprop/reversible/stream_arithmetic.h"

namespace pareprop {

// The gradients of one block, final: nothing will be added to them. They are the very tensors that
// the backward pass returns, so changing them in place (an all-reduce) changes what parameters
// receive.
struct BlockGradients {
  int block = 0;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  // one a parameter
};

// How a stack is trained. Read at each forward call; changing it does not touch calls under way.
struct StackOptions {
  // A preset of policies and overlap.
  Mode mode = Mode::pareprop;
  // One a block instead of the preset's; empty: the preset's.
  std::vector<Policy> policies = {};
  // Branches that recovery may be ahead of the gradient (2 is one block), with overlap.
  int lookahead = 2;
  // Branches whose weight gradients may be outstanding, with overlap; 0: never deferred.
  int deferred = 2;
  // CPU lanes with overlap: 2 or 3.
  int lanes = 2;
  // Keep the tapes of the topmost branches from the forward pass, as many as the backward pass has
  // alive anyway. Turn off for stacks that are not the last before the loss.
  bool keep_tail = true;
  // Networks in stages: what lies between stacks is recomputed in the backward pass instead of
  // stored (as in mode checkpoint).
  bool recompute_between = false;

  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  // Of exact streams; 0: the default of StreamArithmetic.
  int fraction_bits = 0;
  // A recovered stream may differ from the forward pass by this much, relative to its largest
  // value, before the backward pass fails; 0: a default by precision. Exact streams may not differ
  // at all.
  double drift_limit = 0.0;
  // A parameter of a branch that gets no gradient is an error unless this is set.
  bool allow_unused_parameters = false;

  // With the number of the call, what randomness is drawn from when the call names no pass.
  std::uint64_t seed = 0;

  // `auto` only: bytes that kept tapes may take; 0: three quarters of the memory that is free.
  std::int64_t tape_budget = 0;

  // Who runs the backward pass with overlap; may be shared by stacks. Null: the stack makes its
  // own.
  std::shared_ptr<Executor> executor = nullptr;
  // Called in the order of blocks, from the top, as soon as a block's gradients are final, while
  // lower blocks are still being recovered. On a lane's thread: be short, do not touch the stack.
  std::function<void(const BlockGradients&)> on_block_gradients = nullptr;
  // Called at the end of each backward pass with what ran when.
  std::function<void(const TaskGraph&, const Timeline&)> on_trace = nullptr;
  // Called at the end of each forward pass with when each branch ran: tasks of the spans are
  // branches.
  std::function<void(const Timeline&)> on_forward = nullptr;
  // Told of every task and branch that on_trace and on_forward will have, as it begins and ends.
  // Only where the one or the other is set.
  std::shared_ptr<Observer> observer = nullptr;
};

}  // namespace pareprop
