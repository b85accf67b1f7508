#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pareprop/lanes/executor.h"
#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/stack.h"
#include "tests/reversible/test_branches.h"

namespace pareprop::testing {

// A stack and what is done with it: depth, mode, policies, arithmetic, dropout, extra arguments,
// shared and frozen parameters, several forwards before a backward, evaluation in between.
struct RandomStack {
  int depth = 0;
  BranchShape shape;
  Mode mode = Mode::stored;
  StackPlan plan;
  StackOptions options;
  bool bias = false, mask = false, one_input = true, frozen = false, shared = false;
  bool two_forwards = false, eval_between = false, only_y1 = false;
  Coupling coupling = Coupling::reversible;
  int frozen_blocks = 0;  // the lowest ones; with a frozen input the backward pass ends above them
  bool frozen_input = false;
  std::uint64_t seed = 0;

  explicit RandomStack(std::uint64_t seed, int most_blocks = 13);
  // The same with another coupling, and with policies that it allows.
  RandomStack coupled(Coupling other) const;
  std::string text() const;
};

class StackProblem {
 public:
  // The same weights and inputs on every device.
  StackProblem(const RandomStack& c, std::shared_ptr<Executor> executor,
               c10::Device device = c10::Device(c10::DeviceType::CPU));

  // Gradients of everything that wants one, and the loss.
  std::vector<at::Tensor> gradients(const StackPlan& plan, const StackOptions& options,
                                    bool reference,
                                    const std::shared_ptr<GradientTaker>& taker = nullptr);

  // Whose gradients these are, but for the last: the loss.
  const std::vector<at::Tensor>& wanted() const { return wanted_; }
  const Stack& stack() const { return stack_; }

 private:
  struct Inputs {
    at::Tensor x1, x2, bias, mask;
    std::vector<at::Tensor> weights;  // of the loss, one a forward and output
  };

  const RandomStack case_;
  Stack stack_{nullptr};
  Inputs in_;
  std::vector<at::Tensor> wanted_;
};

}  // namespace pareprop::testing
