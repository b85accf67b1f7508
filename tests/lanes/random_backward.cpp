#include "tests/lanes/random_backward.h"

#include <algorithm>
#include <random>

#include "tests/graph/ancestors.h"

namespace pareprop::testing {
namespace {

constexpr std::uint64_t kNothing = 0xdeadbeefdeadbeef;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Not symmetric, so that the order of what is mixed shows.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15 + (b ^ (b >> 29)) + 0x632be59bd9b4e019;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t branch_output(int k, std::uint64_t input) {
  return mix(static_cast<std::uint64_t>(k), input);
}
std::uint64_t branch_tape(int k, std::uint64_t input) {
  return mix(input, static_cast<std::uint64_t>(k) + 1000);
}

// gradient(k) of Note [The chain of branches].
void add_gradient(std::vector<std::uint64_t>& gradient, int k, std::uint64_t tape) {
  gradient[at(k + 1)] = mix(gradient[at(k + 1)], mix(tape, gradient[at(k + 2)]));
  gradient[at(k)] = mix(gradient[at(k)], gradient[at(k + 2)]);
}
std::uint64_t weight_gradient(const std::vector<std::uint64_t>& gradient, int k,
                              std::uint64_t tape) {
  return mix(gradient[at(k + 2)], tape);
}

KeepPlan random_plan(std::mt19937_64& random, int max_depth) {
  const auto upto = [&](int n) { return std::uniform_int_distribution(0, n)(random); };
  std::vector<Policy> policies(at(upto(max_depth)));
  const bool all_reverse = upto(2) == 0;
  for (Policy& policy : policies)
    policy = all_reverse ? Policy::reverse : kPolicies[at(upto(int{kPolicies.size()} - 1))];
  return keep_plan(policies, {.tail = upto(3) == 0 ? upto(4) : 0, .recover_bottom = upto(1) == 0});
}

}  // namespace

RandomBackward::RandomBackward(std::uint64_t seed_) : seed(seed_) {
  std::mt19937_64 random(seed);
  const auto upto = [&](int n) { return std::uniform_int_distribution(0, n)(random); };
  plan = random_plan(random, 9);
  if (upto(2) == 0) below = random_plan(random, 4);
  options.overlap = upto(9) != 0;
  options.lookahead = upto(5);
  options.deferred = upto(1) * upto(4);
  options.lanes = 2 + upto(1);
  options.rule = upto(1) == 0 ? LaneRule::any : LaneRule::fixed;
  ready = upto(3) == 0 ? upto(std::min(options.lookahead, 2 * plan.depth())) : 0;
  graph = backward_schedule(plan, options, ready, below ? &*below : nullptr);
}

std::string RandomBackward::text() const {
  return "seed " + std::to_string(seed) + ": depth " + std::to_string(plan.depth()) + ", overlap " +
         std::to_string(options.overlap) + ", look-ahead " + std::to_string(options.lookahead) +
         ", deferred " + std::to_string(options.deferred) + ", lanes " +
         std::to_string(options.lanes) + ", " + (options.rule == LaneRule::any ? "any" : "fixed") +
         ", ready " + std::to_string(ready) + (below ? ", with a stack below" : "");
}

TaskGraph on_fixed_lanes(const TaskGraph& graph) {
  if (graph.rule() == LaneRule::fixed) return graph;
  TaskGraph fixed;
  for (Task task : graph.tasks()) {
    if (task.kind == TaskKind::recover) task.lane = 1;
    // With two lanes there is none of their own for weight gradients.
    if (task.kind == TaskKind::weight_gradient)
      task.lane = graph.lanes() > 2 ? 2 : task.block() % 2;
    fixed.add(std::move(task));
  }
  return fixed;
}

std::vector<std::pair<int, int>> essential_edges(const TaskGraph& graph) {
  std::vector<std::pair<int, int>> edges;
  for (int id = 0; id < graph.size(); ++id) {
    for (const int needed : graph[id].needs) {
      if (!testing::ancestors(graph.without_edge(id, needed), id)[at(needed)])
        edges.emplace_back(id, needed);
    }
  }
  return edges;
}

HashedBackward::HashedBackward(const RandomBackward& backward)
    : backward_(backward), branches_(static_cast<int>(backward.plan.branches.size())) {
  const ScheduleOptions& options = backward_.options;
  int alive = 1;
  if (options.overlap) alive += options.lookahead;
  ring_.assign(at(alive), kNothing);
}

void HashedBackward::forward() {
  top_ = make_stack(backward_.plan, backward_.seed);
  for (int s = 0; s < backward_.ready; ++s) {
    const int k = branches_ - 1 - s;
    top_.tape[at(k)] = top_.true_tape[at(k)];
    top_.value[at(k)] = top_.true_value[at(k)];
  }
  if (backward_.below) below_ = make_stack(*backward_.below, backward_.seed + 1);
  gradient_.resize(at(branches_ + 2));
  for (int k = 0; k < branches_ + 2; ++k) gradient_[at(k)] = mix(7, static_cast<unsigned>(k));
  weight_gradient_.assign(at(branches_), kNothing);
}

HashedBackward::Stack HashedBackward::make_stack(const KeepPlan& plan, std::uint64_t seed) const {
  const int count = static_cast<int>(plan.branches.size());
  Stack stack{.plan = &plan, .value = {}, .tape = {}, .true_value = {}, .true_tape = {}};
  stack.true_value = {mix(seed, 1), mix(seed, 2)};
  for (int k = 0; k < count; ++k) {
    stack.true_value.push_back(stack.true_value[at(k)] +
                               branch_output(k, stack.true_value[at(k + 1)]));
    stack.true_tape.push_back(branch_tape(k, stack.true_value[at(k + 1)]));
  }
  stack.value.assign(at(count + 2), kNothing);
  stack.tape.assign(at(count), kNothing);
  for (int k = 0; k < count; ++k) {
    if (plan.branches[at(k)].value) stack.value[at(k)] = stack.true_value[at(k)];
    if (plan.branches[at(k)].tape) stack.tape[at(k)] = stack.true_tape[at(k)];
  }
  if (plan.wants_y1) stack.value[at(count)] = stack.true_value[at(count)];
  if (plan.wants_y2) stack.value[at(count + 1)] = stack.true_value[at(count + 1)];
  return stack;
}

std::uint64_t& HashedBackward::tape(int k) {
  const int s = branches_ - 1 - k;
  const bool kept = backward_.plan.branches[at(k)].tape || s < backward_.ready;
  return kept ? top_.tape[at(k)] : ring_[at(s) % ring_.size()];
}

void HashedBackward::recover(Stack& stack, int k, std::uint64_t& tape) {
  const BranchKeep& keep = stack.plan->branches[at(k)];
  const std::uint64_t input = stack.value[at(k + 1)];
  if (!keep.tape) tape = branch_tape(k, input);
  if (keep.wants_value && !keep.value) {
    stack.value[at(k)] = stack.value[at(k + 2)] - branch_output(k, input);
  }
}

void HashedBackward::run(const Task& task) {
  const int k = task.branch;
  if (task.kind == TaskKind::recover) {
    if (task.stack == 1) return recover(*below_, k, below_->tape[at(k)]);
    return recover(top_, k, tape(k));
  }
  const bool deferred = backward_.options.overlap && backward_.options.deferred > 0;
  if (task.kind == TaskKind::gradient) add_gradient(gradient_, k, tape(k));
  if (task.kind == TaskKind::weight_gradient || !deferred) {
    weight_gradient_[at(k)] = weight_gradient(gradient_, k, tape(k));
    tape(k) = kNothing;
  }
}

std::vector<std::uint64_t> HashedBackward::collect(const Stack& top, const Stack* below,
                                                   const Words& gradient,
                                                   const Words& weight_gradient) const {
  Words all = gradient;
  all.insert(all.end(), weight_gradient.begin(), weight_gradient.end());
  for (int k = 0; k < branches_; ++k) {
    if (backward_.plan.branches[at(k)].wants_value) all.push_back(top.value[at(k)]);
  }
  for (const Task& task : backward_.graph.tasks()) {
    if (task.stack == 1) all.push_back(below->tape[at(task.branch)]);
  }
  return all;
}

std::vector<std::uint64_t> HashedBackward::results() const {
  return collect(top_, below_ ? &*below_ : nullptr, gradient_, weight_gradient_);
}

std::vector<std::uint64_t> HashedBackward::expected() const {
  HashedBackward ideal(backward_);
  ideal.forward();
  ideal.top_.value = ideal.top_.true_value;
  if (ideal.below_) ideal.below_->tape = ideal.below_->true_tape;
  for (int k = branches_ - 1; k >= 0; --k) {
    add_gradient(ideal.gradient_, k, ideal.top_.true_tape[at(k)]);
    ideal.weight_gradient_[at(k)] =
        weight_gradient(ideal.gradient_, k, ideal.top_.true_tape[at(k)]);
  }
  return ideal.results();
}

}  // namespace pareprop::testing
