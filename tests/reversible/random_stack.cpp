#include "tests/reversible/random_stack.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <random>
#include <sstream>

namespace pareprop::testing {

RandomStack::RandomStack(std::uint64_t seed_, int most_blocks) : seed(seed_) {
  std::mt19937_64 random(seed);
  auto pick = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  auto coin = [&] { return pick(2) == 0; };
  constexpr int depths[] = {0, 1, 2, 3, 4, 5, 8, 13};
  depth = std::min(depths[pick(8)], most_blocks);
  constexpr Mode modes[] = {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop};
  mode = modes[pick(4)];
  plan = plan_of(mode, depth);
  if (coin()) {
    for (Policy& policy : plan.policies) {
      policy = kPolicies[static_cast<std::size_t>(pick(int{kPolicies.size()}))];
    }
  }
  constexpr Precision precisions[] = {Precision::fp64, Precision::fp32, Precision::bf16};
  options.precision = precisions[pick(3)];
  options.arithmetic = pick(3) == 0 ? Arithmetic::exact : Arithmetic::floating;
  plan.lookahead = pick(4);
  plan.deferred = pick(4);
  plan.lanes = 2 + pick(2);
  if (!coin()) plan.tail = 0;
  options.seed = random();
  shape.dtype = stream_dtype(options.precision);
  shape.dropout = coin() ? 0.2 : 0.0;
  shape.drop_path = coin() ? 0.3 : 0.0;
  shape.plain_linear = pick(3) == 0;
  bias = coin();
  mask = coin();
  one_input = coin();
  frozen = coin();
  shared = pick(3) == 0;
  two_forwards = pick(3) == 0;
  eval_between = coin();
  only_y1 = pick(4) == 0;
  frozen_blocks = pick(3) == 0 ? pick(depth + 1) : 0;
  frozen_input = pick(2) == 0;
}

RandomStack RandomStack::coupled(Coupling other) const {
  RandomStack made = *this;
  made.coupling = other;
  for (Policy& policy : made.plan.policies) {
    if (policy == Policy::anchor || policy == Policy::reverse) policy = leanest_policy(other);
  }
  return made;
}

std::string RandomStack::text() const {
  std::ostringstream out;
  out << "seed " << seed << " depth " << depth << " mode " << name(mode) << " policies [";
  for (Policy policy : plan.policies) out << name(policy) << ' ';
  out << "] precision " << name(options.precision) << " arithmetic " << name(options.arithmetic)
      << " lookahead " << plan.ahead() << " deferred " << plan.deferred << " lanes " << plan.lanes
      << " tail " << plan.kept_tail() << " dropout " << shape.dropout << " drop_path "
      << shape.drop_path << " plain " << shape.plain_linear << " bias " << bias << " mask " << mask
      << " one_input " << one_input << " frozen " << frozen << " shared " << shared
      << " two_forwards " << two_forwards << " eval " << eval_between << " only_y1 " << only_y1
      << " streams " << streams(coupling) << " frozen blocks " << frozen_blocks << " frozen input "
      << frozen_input;
  return out.str();
}

StackProblem::StackProblem(const RandomStack& c, std::shared_ptr<Executor> executor,
                           c10::Device device)
    : case_(c) {
  auto blocks = test_blocks(c.depth, c.shape, c.seed % 1000);
  if (c.shared && c.depth > 1) {
    blocks.back().f = blocks.front().f;
    blocks[static_cast<std::size_t>(c.depth / 2)].g = blocks.front().g;
  }
  stack_ = Stack(std::move(blocks), c.coupling, c.options);
  stack_->set_plan(c.plan);
  stack_->to(device);
  stack_->set_executor(std::move(executor));
  std::mt19937_64 random(c.seed + 1);
  if (c.frozen) {
    for (auto& p : stack_->parameters()) {
      if (random() % 3 == 0) p.set_requires_grad(false);
    }
  }
  for (int i = 0; i < c.frozen_blocks; ++i) {
    for (auto& p : stack_->named_children()[std::to_string(i)]->parameters()) {
      p.set_requires_grad(false);
    }
  }
  const auto dtype = c.shape.dtype;
  constexpr std::int64_t batch = 3, tokens = 5;
  const std::int64_t width = c.shape.width;
  const auto made = [&](at::IntArrayRef sizes, at::ScalarType type, std::uint64_t seed) {
    return random_tensor(sizes, type, seed).to(device);
  };
  in_.x1 = made({batch, tokens, width}, dtype, c.seed + 2).requires_grad_(!c.frozen_input);
  in_.x2 = c.one_input
               ? in_.x1
               : made({batch, tokens, width}, dtype, c.seed + 3).requires_grad_(!c.frozen_input);
  if (c.bias) in_.bias = made({2, tokens, tokens}, dtype, c.seed + 4).requires_grad_(true);
  if (c.mask) in_.mask = made({batch, tokens}, at::kFloat, c.seed + 5).gt(-0.8);
  for (int i = 0; i < 4; ++i) {
    in_.weights.push_back(made({batch, tokens, width}, dtype, c.seed + 10 + std::uint64_t(i)));
  }
  for (const auto& p : stack_->parameters()) {
    if (p.requires_grad()) wanted_.push_back(p);
  }
  if (!c.frozen_input) wanted_.push_back(in_.x1);
  if (!c.frozen_input && !c.one_input && is_reversible(c.coupling)) wanted_.push_back(in_.x2);
  if (c.bias) wanted_.push_back(in_.bias);
}

std::vector<at::Tensor> StackProblem::gradients(const StackPlan& plan, const StackOptions& options,
                                                bool reference,
                                                const std::shared_ptr<GradientTaker>& taker) {
  stack_->set_plan(plan);
  stack_->set_options(options);
  at::Tensor loss;
  const int forwards = case_.two_forwards ? 2 : 1;
  for (int i = 0; i < forwards; ++i) {
    const CallOptions call{
        .extras = {in_.bias, in_.mask},
        .pass = std::make_shared<Pass>(options.seed, std::uint64_t(i), nullptr, taker)};
    const at::Tensor x1 = i == 0 ? in_.x1 : in_.x1.mul(0.5);
    const at::Tensor x2 = case_.one_input ? x1 : in_.x2;
    const auto w = static_cast<std::size_t>(2 * i);
    at::Tensor part;
    if (is_reversible(case_.coupling)) {
      const auto [y1, y2] =
          reference ? stack_->reference(x1, x2, call) : stack_->forward(x1, x2, call);
      part = y1.mul(in_.weights[w]).sum();
      if (!case_.only_y1) part = part.add(y2.mul(in_.weights[w + 1]).sum());
    } else {
      const at::Tensor y = reference ? stack_->reference(x1, call) : stack_->forward(x1, call);
      part = y.mul(in_.weights[w]).sum();
    }
    loss = loss.defined() ? loss.add(part) : part;
    if (case_.eval_between) {
      stack_->eval();
      c10::AutoGradMode no_graph(false);
      if (is_reversible(case_.coupling)) {
        stack_->forward(in_.x1, in_.x1, call);
      } else {
        stack_->forward(in_.x1, call);
      }
      stack_->train();
    }
  }
  std::vector<at::Tensor> found;
  if (loss.requires_grad()) {
    found = torch::autograd::grad({loss}, wanted_, {}, std::nullopt, false, true);
  } else {
    found.resize(wanted_.size());
  }
  // y2 alone is unused: ordinary autograd gives the top G nothing where the stack gives zeros.
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) found[i] = wanted_[i].new_zeros(wanted_[i].sizes());
  }
  found.push_back(loss.detach());
  return found;
}

}  // namespace pareprop::testing
