#include "pareprop/plan/joint_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace pareprop::plan {
namespace {

// What a machine multiplies in the time that it takes to read a weight twice and to add to its
// gradient: about the same for CPUs and accelerators, whose memory is as much faster as they are.
constexpr double kMacsOfAWeight = 200.0;

// Seconds of different sizes are sums of other numbers.
constexpr double kRounding = 1.0 - 1e-9;

bool fits_stored(Planner& planner, const StepSize& size, std::int64_t budget) {
  return planner.predict(planner.all(Mode::stored), size.samples, size.adds).at_most <= budget;
}

Prediction less(Prediction predicted, std::int64_t state_bytes) {
  predicted.peak[static_cast<std::size_t>(memory::Tag::optimizer)] -= state_bytes;
  predicted.total_peak -= state_bytes;
  predicted.at_most -= state_bytes;
  if (predicted.reserved_peak > 0) predicted.reserved_peak -= state_bytes;
  return predicted;
}

}  // namespace

std::vector<std::int64_t> part_counts(std::int64_t batch) {
  std::vector<std::int64_t> counts{1};
  for (std::int64_t count = 2; count <= batch / 2; ++count) {
    if (batch % count == 0) counts.push_back(count);
  }
  if (batch > 1) counts.push_back(batch);
  return counts;
}

StepShape part_of(StepShape whole, std::int64_t parts) {
  if (parts == 1) return whole;
  const std::int64_t samples = whole.batch / parts;
  whole.other_bytes += (whole.batch - samples) * whole.input_bytes;
  whole.other_bytes += std::exchange(whole.parts_bytes, 0);
  whole.batch = samples;
  whole.accumulates = true;
  return whole;
}

std::optional<std::size_t> fastest_option(
    const std::vector<Seconds>& least,
    const std::function<std::optional<Seconds>(std::size_t)>& solve) {
  std::vector<std::size_t> order(least.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return least[a] < least[b]; });
  std::optional<std::pair<Seconds, std::size_t>> best;
  for (const std::size_t i : order) {
    if (best && std::pair(least[i], i) > *best) continue;
    const std::optional<Seconds> taken = solve(i);
    if (taken && (!best || std::pair(*taken, i) < *best)) best = {*taken, i};
  }
  return best ? std::optional(best->second) : std::nullopt;
}

JointSearch::JointSearch(MakeNetwork make, const StepShape& whole, std::vector<Departure> allowed)
    : make_(std::move(make)),
      whole_(whole),
      allowed_(std::move(allowed)),
      counts_(part_counts(whole.batch)) {}

void JointSearch::only(std::int64_t parts) { counts_ = {parts}; }

JointSearch::Kind JointSearch::kind_of(const Option& option) const {
  if (!option.departure) return {whole_.updates_inside, whole_.goes_back_twice};
  const Departure& own = allowed_[*option.departure];
  return {own.updates_inside, own.goes_back_twice};
}

Planner& JointSearch::planner(std::int64_t parts) { return planner_of({std::nullopt, parts}); }

Planner& JointSearch::planner_of(const Option& option) {
  const Kind kind = kind_of(option);
  std::unique_ptr<Planner>& planner = planners_[{kind, option.parts}];
  if (!planner) {
    StepShape shape = part_of(whole_, option.parts);
    shape.updates_inside = kind.inside;
    shape.goes_back_twice = kind.twice;
    if (option.departure) shape.other_bytes -= allowed_[*option.departure].less_bytes;
    planner = std::make_unique<Planner>(make_, shape);
    tell(*planner, option.parts);
  }
  return *planner;
}

StepSize JointSearch::size_of(std::int64_t parts) const {
  return {whole_.batch / parts, parts > 1 || whole_.accumulates};
}

void JointSearch::tell(Planner& planner, std::int64_t parts) {
  if (measured()) {
    planner.use(times_of(size_of(parts)));
  } else {
    planner.use(rate_);
  }
}

void JointSearch::use(SizeTimes times) {
  times_ = std::move(times);
  planned_.clear();
  for (auto& [key, planner] : planners_) tell(*planner, key.second);
}

void JointSearch::use(MacsPerSecond rate) {
  rate_ = rate;
  use(SizeTimes{});
}

StepTimes JointSearch::times_of(const StepSize& size) {
  const auto distance = [&](const auto& entry) {
    return std::tuple(std::abs(std::log(static_cast<double>(entry.first.samples) /
                                        static_cast<double>(size.samples))),
                      entry.first.adds != size.adds);
  };
  const auto nearest =
      std::min_element(times_.begin(), times_.end(),
                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  const double share =
      static_cast<double>(size.samples) / static_cast<double>(nearest->first.samples);
  StepTimes times = scaled(nearest->second, share);
  // Weights and gradients are as many in a smaller step.
  if (share < 1.0) times.rest += (1.0 - share) * adding().count;
  return times;
}

std::vector<StepSize> JointSearch::sizes_to_measure(std::int64_t budget) {
  std::vector<StepSize> sizes;
  Planner& whole = planner(counts_.front());
  int stored = 0;
  std::int64_t before = 0;  // so many parts
  for (const std::int64_t parts : counts_) {
    if (parts > 1 && whole_.updates_inside) break;
    // Sizes that are near to each other are about as fast.
    if (parts < 2 * before && parts != counts_.back()) continue;
    before = parts;
    StepSize size = size_of(parts);
    const auto peak = [&](bool overlap) {
      return whole.predict(whole.recomputing(overlap), size.samples, size.adds).at_most;
    };
    if (peak(false) > budget) continue;
    size.overlapped = peak(true) <= budget;
    size.drops_gradients = whole_.takes_gradients(size.adds);
    sizes.push_back(size);
    // One more: small parts may be faster than large ones, where they stay in caches.
    if (fits_stored(whole, size, budget) && ++stored == 2) break;
  }
  // Long steps are all as fast for each sample: nobody need wait for them.
  constexpr Seconds kLong{10.0};
  const auto estimated = [&](const StepSize& size) {
    return static_cast<double>(size.samples) / static_cast<double>(whole.shape().batch) *
           whole.seconds(whole.recomputing(false));
  };
  while (sizes.size() > 1 && estimated(sizes.front()) > kLong) sizes.erase(sizes.begin());
  return sizes;
}

std::vector<JointSearch::Option> JointSearch::options() const {
  std::vector<Option> all;
  const auto add = [&](std::optional<std::size_t> departure) {
    for (const std::int64_t parts : counts_) {
      const Option option{departure, parts};
      // Between parts the gradients of all weights are kept.
      if (parts > 1 && kind_of(option).inside) continue;
      all.push_back(option);
    }
  };
  add(std::nullopt);
  for (std::size_t i = 0; i < allowed_.size(); ++i) add(i);
  return all;
}

std::int64_t JointSearch::state_bytes(const MakeOptimizer& make) {
  if (!make) return 0;
  std::vector<at::Tensor> trained;
  for (const at::Tensor& weight : planner(counts_.front()).network().weights()) {
    if (weight.requires_grad()) trained.push_back(weight.detach());
  }
  std::int64_t bytes = 0;
  for (const at::Tensor& own : make(trained).state)
    bytes += static_cast<std::int64_t>(own.nbytes());
  return bytes;
}

std::int64_t JointSearch::saved_bytes(const Option& option) {
  if (!option.departure || whole_.only_activations) return 0;
  const auto known = saved_.find(*option.departure);
  if (known != saved_.end()) return known->second;
  const std::int64_t saved = state_bytes(whole_.optimizer_state) -
                             state_bytes(allowed_[*option.departure].optimizer_state);
  return saved_[*option.departure] = saved;
}

Seconds JointSearch::adding() {
  std::int64_t weights = 0;
  for (const at::Tensor& weight : planner(counts_.front()).network().weights()) {
    weights += weight.numel();
  }
  return Macs{kMacsOfAWeight * static_cast<double>(weights)} / rate_;
}

Seconds JointSearch::seconds(const StepPlan& step, std::int64_t parts) {
  return seconds_of({std::nullopt, parts}, step);
}

Seconds JointSearch::seconds_of(const Option& option, const StepPlan& step) {
  Planner& planner = planner_of(option);
  const auto parts = static_cast<double>(option.parts);
  // Without stacks only shares are known: a sample stored is three times its forward pass.
  Seconds one =
      planner.without_stacks()
          ? Seconds{(step.stores_all() ? 3.0 : 4.0) * static_cast<double>(planner.shape().batch)}
          : planner.seconds(step);
  if (kind_of(option).twice) {
    const Seconds stored =
        planner.without_stacks() ? one : planner.seconds(planner.all(Mode::stored));
    one = 2.0 * one - stored / 3.0;  // but for the forward pass
  }
  const Seconds all = parts * one;
  if (planner.without_stacks()) return all + Seconds{parts - 1.0};
  return measured() ? all : all + (parts - 1.0) * adding();
}

Seconds JointSearch::least(const Option& option) {
  const auto parts = static_cast<double>(option.parts);
  if (measured()) {
    const std::vector<int> depths = planner(counts_.front()).network().depths();
    return kRounding * parts * least_seconds(times_of(size_of(option.parts)), depths);
  }
  if (without_stacks()) return {};
  Planner& first = planner(counts_.front());
  const Seconds stored =
      static_cast<double>(counts_.front()) * first.seconds(first.all(Mode::stored));
  return kRounding * (stored + (parts - 1.0) * adding());
}

const JointPlan& JointSearch::planned(const Option& option, std::int64_t budget) {
  const std::pair key(option, budget);
  const auto known = planned_.find(key);
  if (known != planned_.end()) return known->second;
  const std::int64_t saved = saved_bytes(option);
  JointPlan made{.micro = planner_of(option).plan_step(budget + saved),
                 .parts = option.parts,
                 .departure = option.departure};
  made.micro.budget = budget;
  made.micro.predicted = less(made.micro.predicted, saved);
  made.micro.smallest_budget -= saved;
  made.seconds = seconds_of(option, made.micro.step);
  return planned_.emplace(key, std::move(made)).first->second;
}

// A dry step or two instead of the many of a planner.
bool JointSearch::may_fit(const Option& option, std::int64_t budget) {
  if (option.parts == counts_.front() || kind_of(option) != kind_of({})) return true;
  Planner& whole = planner(counts_.front());
  const StepShape part = part_of(whole_, option.parts);
  const std::int64_t waiting = part.other_bytes - whole.shape().other_bytes;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (StepPlan lean : {whole.all(Mode::checkpoint), whole.recomputing(false)}) {
    const Prediction taken = whole.predict(lean, part.batch, part.accumulates);
    constexpr std::int64_t kUnlikely = 4;  // what a plan may have less of its activations
    least = std::min(least, taken.at_most - taken.activation_peak / kUnlikely);
  }
  return least + waiting - saved_bytes(option) <= budget;
}

JointPlan JointSearch::best_of(const std::vector<Option>& options, std::int64_t budget) {
  std::vector<Seconds> all;
  for (const Option& option : options) all.push_back(least(option));
  const auto best = fastest_option(all, [&](std::size_t i) -> std::optional<Seconds> {
    if (!may_fit(options[i], budget)) return std::nullopt;
    const JointPlan& own = planned(options[i], budget);
    return own.micro.fits ? std::optional(own.seconds) : std::nullopt;
  });
  if (best) return planned(options[*best], budget);
  return leanest_of(options, budget);
}

const JointPlan& JointSearch::leanest_of(const std::vector<Option>& options, std::int64_t budget) {
  const JointPlan* leanest = nullptr;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto as_this = [&](std::size_t other) {
      return other < options.size() && options[other].departure == options[i].departure;
    };
    // Either the smallest parts take the least, or none: then there are no gradients of others.
    if (as_this(i - 1) && as_this(i + 1)) continue;
    const JointPlan& own = planned(options[i], budget);
    if (leanest == nullptr || own.micro.smallest_budget < leanest->micro.smallest_budget) {
      leanest = &own;
    }
  }
  return *leanest;
}

JointPlan JointSearch::in_mode(Mode mode, std::int64_t budget,
                               std::optional<std::size_t> departure) {
  const Option option{departure, counts_.front()};
  Planner& planner = planner_of(option);
  JointPlan made{.micro = {}, .parts = option.parts, .departure = departure};
  made.micro.step = planner.all(mode);
  made.micro.predicted = less(planner.predict(made.micro.step), saved_bytes(option));
  made.micro.smallest_budget = made.micro.predicted.at_most;
  made.micro.budget = budget;
  made.micro.fits = made.micro.predicted.at_most <= budget;
  made.seconds = seconds_of(option, made.micro.step);
  return made;
}

void JointSearch::add_figures(JointPlan& plan, Mode mode) {
  const std::int64_t budget = plan.micro.budget;
  if (mode != Mode::automatic) {
    Planner& whole = planner(counts_.front());
    const StepPlan step = whole.all(mode);
    plan.micro.smallest_budget = whole.predict(step).at_most;
    plan.micro.largest_batch = whole.largest_batch(step, budget);
    return;
  }
  const std::vector<Option> all = options();
  plan.micro.smallest_budget = leanest_of(all, budget).micro.smallest_budget;
  plan.micro.largest_batch = 0;
  for (const Option& option : all) {
    if (option.parts != counts_.front()) continue;
    plan.micro.largest_batch = std::max(
        plan.micro.largest_batch, planner_of(option).largest_batch(budget + saved_bytes(option)));
  }
  const Option whole{plan.departure, counts_.front()};
  const bool cut = plan.micro.fits && plan.parts > 1;
  plan.micro.micro_batch = cut ? whole_.batch / plan.parts : 0;
  plan.micro.accumulate = cut ? plan.parts : 0;
  plan.micro.stored_micro_batch =
      planned(whole, budget).micro.fits
          ? planner_of(whole).largest_stored_part(budget + saved_bytes(whole))
          : 0;
}

JointPlan JointSearch::best(std::int64_t budget) {
  JointPlan stored = in_mode(Mode::stored, budget);
  return stored.micro.fits ? stored : best_of(options(), budget);
}

JointPlan JointSearch::best_whole(std::int64_t budget) {
  return planned({std::nullopt, counts_.front()}, budget);
}

std::optional<JointPlan> JointSearch::best_in_parts(std::int64_t budget) {
  std::vector<Option> some = options();
  std::erase_if(some, [&](const Option& option) {
    return option.departure.has_value() || option.parts == counts_.front();
  });
  if (some.empty()) return std::nullopt;
  return best_of(some, budget);
}

JointPlan JointSearch::best_with(std::size_t departure, std::int64_t budget) {
  std::vector<Option> some = options();
  std::erase_if(some, [&](const Option& option) { return option.departure != departure; });
  return best_of(some, budget);
}

namespace {
constexpr double kNotable = 1.05, kAny = 1.01;
}

std::optional<JointSearch::Price> JointSearch::next_up(const JointPlan& plan) {
  if (without_stacks() || plan.seconds <= Seconds{}) return std::nullopt;
  const std::int64_t budget = plan.micro.budget;
  const std::int64_t most = in_mode(Mode::stored, budget).micro.predicted.at_most;
  const auto times = [&](double factor) {
    return std::llround(factor * static_cast<double>(budget));
  };
  for (const std::int64_t more : {std::int64_t{times(1.25)}, std::int64_t{times(2.0)}, most}) {
    if (more <= budget || more > most) continue;
    JointPlan next = best(more);
    const double speed = plan.seconds / next.seconds;
    const double least = !plan.micro.fits ? 0.0 : more == most ? kAny : kNotable;
    if (!next.micro.fits || speed < least) continue;
    return Price{next.micro.predicted.at_most - budget, speed, std::move(next)};
  }
  return std::nullopt;
}

std::optional<JointSearch::Price> JointSearch::next_down(const JointPlan& plan) {
  if (without_stacks() || !plan.micro.fits || plan.seconds <= Seconds{}) return std::nullopt;
  const std::int64_t budget = plan.micro.budget;
  const auto price = [&](JointPlan next) {
    const double speed = plan.seconds / next.seconds;
    return Price{budget - next.micro.predicted.at_most, speed, std::move(next)};
  };
  const auto taken = static_cast<double>(std::min(budget, plan.micro.predicted.at_most));
  for (const double share : {0.9, 0.75, 0.5}) {
    JointPlan next = best(std::llround(taken * share));
    if (!next.micro.fits) {
      next = best(next.micro.smallest_budget);
      if (!next.micro.fits || next.micro.predicted.at_most >= plan.micro.predicted.at_most) break;
      return price(std::move(next));
    }
    if (next.seconds > kNotable * plan.seconds) return price(std::move(next));
  }
  return std::nullopt;
}

}  // namespace pareprop::plan
