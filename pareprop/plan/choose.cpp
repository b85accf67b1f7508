#include "pareprop/plan/choose.h"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

namespace pareprop::plan {
namespace {

std::int64_t edge_bytes(const StackProfile& stack, int block, Policy below, Policy policy) {
  if (block <= stack.first) return 0;
  return keeps_tape(policy) && !keeps_tape(below) ? stack.edge : 0;
}

// Blocks that nothing is trained in have no choice.
std::span<const Policy> policies_of_block(const StackProfile& stack, int block) {
  const auto all = policies_of(stack.coupling);
  return block < stack.first ? all.first(1) : all;
}

// Note [Search by labels]
// Blocks are decided from the input of the network on. All that later decisions can see of earlier
// ones is how many bytes they keep, how long they take, and the policy of the block just below. So
// of two beginnings with the same last policy, one that keeps no more and takes no longer makes the
// other superfluous; what is left after each block are beginnings that keep more and take less.
struct Label {
  std::int64_t kept = 0;
  Seconds seconds = {};
  Policy policy = Policy::store;  // of the last block; nothing is below the first
  int before = -1;                // the label that this one goes on from, in the layer before
};
using Layer = std::vector<Label>;

// The same seconds added up in another order differ by rounding: that makes no beginning faster.
constexpr double kFaster = 1.0 - 1e-9;

Layer without_superfluous(Layer labels) {
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) {
    return std::tuple(a.policy, a.kept, a.seconds) < std::tuple(b.policy, b.kept, b.seconds);
  });
  Layer left;
  for (const Label& label : labels) {
    const bool first = left.empty() || left.back().policy != label.policy;
    if (first || label.seconds < kFaster * left.back().seconds) left.push_back(label);
  }
  return left;
}

class Search {
 public:
  Search(const Profile& profile, bool overlap, std::int64_t budget)
      : profile_(profile), overlap_(overlap), budget_(budget) {}

  std::optional<Choice> run() {
    if (profile_.below > budget_) return std::nullopt;
    layers_ = {{Label{}}};
    for (const StackProfile& stack : profile_.stacks) {
      for (int i = 0; i < stack.depth(); ++i) {
        layers_.push_back(next_layer(stack, i));
        if (layers_.back().empty()) return std::nullopt;
      }
      std::erase_if(layers_.back(),
                    [&](const Label& label) { return stack.above + label.kept > budget_; });
      if (layers_.back().empty()) return std::nullopt;
    }
    return best();
  }

 private:
  Layer next_layer(const StackProfile& stack, int i) const {
    const Layer& from = layers_.back();
    Layer labels;
    for (std::size_t at = 0; at < from.size(); ++at) {
      const Label& label = from[at];
      for (const Policy policy : policies_of_block(stack, i)) {
        const BlockCost& cost = stack.cost(overlap_, i, policy);
        const std::int64_t kept =
            label.kept + cost.kept + edge_bytes(stack, i, label.policy, policy);
        if (stack.live[static_cast<std::size_t>(i)] + kept + cost.extra > budget_) continue;
        labels.push_back({kept, label.seconds + cost.cost, policy, static_cast<int>(at)});
      }
    }
    return without_superfluous(std::move(labels));
  }

  Choice best() const {
    const Layer& last = layers_.back();
    const auto found = std::min_element(last.begin(), last.end(), [](const auto& a, const auto& b) {
      return std::pair(a.seconds, a.kept) < std::pair(b.seconds, b.kept);
    });
    std::vector<Policy> chosen;
    int at = static_cast<int>(found - last.begin());
    for (std::size_t layer = layers_.size() - 1; layer > 0; --layer) {
      const Label& label = layers_[layer][static_cast<std::size_t>(at)];
      chosen.push_back(label.policy);
      at = label.before;
    }
    std::vector<std::vector<Policy>> policies;
    auto next = chosen.rbegin();
    for (const StackProfile& stack : profile_.stacks) {
      policies.emplace_back(next, next + stack.depth());
      next += stack.depth();
    }
    return evaluate(profile_, overlap_, std::move(policies));
  }

  const Profile& profile_;
  const bool overlap_;
  const std::int64_t budget_;
  std::vector<Layer> layers_;
};

}  // namespace

Choice evaluate(const Profile& profile, bool overlap, std::vector<std::vector<Policy>> policies) {
  Choice choice{.overlap = overlap,
                .policies = std::move(policies),
                .peak = profile.below,
                .seconds = profile.rest};
  std::int64_t kept = 0;
  for (std::size_t s = 0; s < profile.stacks.size(); ++s) {
    const StackProfile& stack = profile.stacks[s];
    const auto& of_stack = choice.policies.at(s);
    for (std::size_t i = 0; i < stack.live.size(); ++i) {
      const int block = static_cast<int>(i);
      const BlockCost& cost = stack.cost(overlap, block, of_stack.at(i));
      kept += cost.kept;
      if (i > 0) kept += edge_bytes(stack, block, of_stack[i - 1], of_stack[i]);
      choice.peak = std::max(choice.peak, stack.live[i] + kept + cost.extra);
      choice.seconds += cost.cost;
    }
    choice.peak = std::max(choice.peak, stack.above + kept);
  }
  return choice;
}

std::optional<Choice> choose(const Profile& profile, std::int64_t budget, bool overlap) {
  return Search(profile, overlap, budget).run();
}

std::optional<Choice> choose(const Profile& profile, std::int64_t budget) {
  const std::optional<Choice> serial = choose(profile, budget, false);
  const std::optional<Choice> overlapped = choose(profile, budget, true);
  if (!serial) return overlapped;
  return overlapped && overlapped->seconds < serial->seconds ? overlapped : serial;
}

void close_in(const Profile& profile, std::int64_t budget, bool overlap, const SpareBytes& spare) {
  constexpr int kRounds = 16;
  const std::int64_t least = smallest_budget(profile, overlap), close = budget / 1024 + 1;
  std::int64_t target = std::max(budget, least);
  std::optional<std::int64_t> fitting, above;
  for (int round = 0; round < kRounds; ++round) {
    const auto choice = choose(profile, target, overlap);
    if (!choice) return;
    const std::optional<std::int64_t> left = spare(*choice);
    if (!left) return;
    (*left >= 0 ? fitting : above) = target;
    if (fitting && above) {
      if (*above - *fitting <= close) return;
      target = *fitting + (*above - *fitting) / 2;
    } else if (fitting) {
      target += std::max(*left, close);
    } else {
      if (target <= least) return;
      target = std::max(least, target + std::min(*left, -close));
    }
  }
}

// What can be done with the fewest bytes: time does not count, so one label a policy is enough.
std::int64_t smallest_budget(const Profile& profile, bool overlap) {
  // Keeping less never raises a later sum, so whether a budget is enough follows from the least
  // that can be kept; which budgets are enough is monotonic.
  auto fits = [&](std::int64_t budget) {
    if (profile.below > budget) return false;
    constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
    std::array<std::int64_t, kPolicies.size()> least{};
    for (const StackProfile& stack : profile.stacks) {
      for (int i = 0; i < stack.depth(); ++i) {
        std::array<std::int64_t, kPolicies.size()> next;
        next.fill(kNever);
        for (const Policy below : kPolicies) {
          const std::int64_t before = least[static_cast<std::size_t>(below)];
          if (before == kNever) continue;
          for (const Policy policy : policies_of_block(stack, i)) {
            const BlockCost& cost = stack.cost(overlap, i, policy);
            const std::int64_t kept = before + cost.kept + edge_bytes(stack, i, below, policy);
            if (stack.live[static_cast<std::size_t>(i)] + kept + cost.extra > budget) continue;
            auto& slot = next[static_cast<std::size_t>(policy)];
            slot = std::min(slot, kept);
          }
        }
        least = next;
      }
      for (auto& kept : least) {
        if (kept != kNever && stack.above + kept > budget) kept = kNever;
      }
    }
    return std::any_of(least.begin(), least.end(), [](auto kept) { return kept != kNever; });
  };
  std::vector<std::vector<Policy>> lean;
  for (const StackProfile& stack : profile.stacks) {
    lean.emplace_back(static_cast<std::size_t>(stack.depth()), leanest_policy(stack.coupling));
  }
  std::int64_t enough = evaluate(profile, overlap, std::move(lean)).peak, too_few = -1;
  while (enough - too_few > 1) {
    const std::int64_t middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::int64_t smallest_budget(const Profile& profile) {
  return std::min(smallest_budget(profile, false), smallest_budget(profile, true));
}

}  // namespace pareprop::plan
