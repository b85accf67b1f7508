#include "pareprop/sweep/run_case.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

#include "pareprop/device/device_memory.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/models/registry.h"
#include "pareprop/plan/joint_search.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/sweep/quantile.h"
#include "pareprop/sweep/verify.h"
#include "pareprop/text/units.h"

namespace pareprop::sweep {
namespace {

std::string words(const Contestant& contestant) {
  std::string out(name(contestant.mode));
  if (contestant.budget > 0) {
    out += " within " + text::bytes_text(static_cast<double>(contestant.budget));
  }
  return out;
}

std::int64_t free_bytes(c10::Device device) {
  return device.is_cpu() ? memory::free_memory() : free_device_memory(device);
}

class CaseRun {
 public:
  CaseRun(const Case& one, const CaseShape& shape, const RunOptions& options)
      : case_(one),
        shape_(shape),
        options_(options),
        memory_(static_cast<double>(options.memory > 0 ? options.memory : free_bytes(one.device))),
        threads_(one.threads) {
    for (const Mode mode : one.modes) add({mode});
    for (const std::int64_t budget : one.budgets) add({Mode::automatic, budget});
  }

  std::vector<ResultRow> run() {
    for (Entry& entry : entries_) entry.row.fits = shape_.step_bytes(entry.who.mode) <= memory_;
    while (anything_fits() && !try_to_run()) {
    }
    std::vector<ResultRow> rows;
    for (Entry& entry : entries_) rows.push_back(std::move(entry.row));
    return rows;
  }

 private:
  struct Entry {
    Contestant who;
    ResultRow row;
    StepPlan plan = {};      // of a budget
    std::int64_t parts = 1;  // that it is for
  };

  void add(const Contestant& who) {
    entries_.push_back({who,
                        {.case_name = case_.name(),
                         .model = case_.model,
                         .family = family_of(case_.model),
                         .plain = case_.change.plain,
                         .mode = std::string(name(who.mode)),
                         .budget_bytes = who.budget,
                         .precision = std::string(name(case_.precision)),
                         .arithmetic = std::string(name(case_.arithmetic)),
                         .batch = case_.batch,
                         .depth = shape_.depth,
                         .tokens = shape_.tokens,
                         .threads = case_.threads}});
  }

  bool anything_fits() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.row.fits; });
  }

  models::WeightOptions weights(at::Device device) const {
    return {.dtype = stream_dtype(case_.precision), .device = device, .seed = case_.seed};
  }

  void tell(const std::string& doing, double share) const {
    if (options_.on_progress) options_.on_progress(doing, share);
  }

  // False when memory ran out: whoever took it is out of the contest.
  bool try_to_run() {
    Entry* running = nullptr;
    try {
      const auto model = models::make_model(case_.model, case_.change, weights(case_.device));
      make_plans(*model);
      if (verify_gradients(*model)) time_steps(*model, running);
      return true;
    } catch (const std::bad_alloc&) {
    } catch (const c10::OutOfMemoryError&) {
    }
    for (Entry& entry : entries_) {
      if (running == nullptr || running == &entry) entry.row.fits = false;
    }
    return false;
  }

  static bool is_planned(const Entry& entry) { return entry.who.mode == Mode::automatic; }

  std::int64_t budget_of(const Entry& entry) const {
    return entry.who.budget > 0 ? entry.who.budget : static_cast<std::int64_t>(memory_);
  }

  void make_plans(models::Model& model) {
    if (std::none_of(entries_.begin(), entries_.end(), is_planned)) return;
    tell("planning", 0.0);
    const at::Tensor input = model.example(1, case_.seed).input;
    plan::JointSearch search(
        [&] { return models::make_model(case_.model, case_.change, weights(at::kMeta)); },
        {.batch = case_.batch,
         .device = case_.device,
         .precision = case_.precision,
         .arithmetic = case_.arithmetic,
         .optimizer_state = {},
         .input_bytes = static_cast<std::int64_t>(input.nbytes())});
    search.use(plan::measure_macs_per_second(case_.device));
    const std::vector<plan::StepSize> sizes = sizes_that_matter(search);
    if (!search.without_stacks() && !sizes.empty()) {
      const NetworkRestored restored(model);
      model.set_numerics(case_.precision, case_.arithmetic);
      search.use(plan::measure_step_times(model, sizes));
    }
    for (Entry& entry : entries_) {
      if (!is_planned(entry)) continue;
      const plan::JointPlan planned = search.best(budget_of(entry));
      entry.row.fits = entry.row.fits && planned.micro.fits;
      entry.row.predicted_peak_bytes = planned.micro.predicted.total_peak;
      if (!planned.micro.fits) entry.row.smallest_budget_bytes = planned.micro.smallest_budget;
      entry.row.parts = planned.parts;
      entry.plan = planned.micro.step;
      entry.parts = planned.parts;
    }
  }

  // Nothing is taken to be faster than to store all, so times matter only where that does not fit.
  std::vector<plan::StepSize> sizes_that_matter(plan::JointSearch& search) const {
    std::vector<plan::StepSize> all;
    for (const Entry& entry : entries_) {
      const std::int64_t budget = budget_of(entry);
      if (!is_planned(entry) || search.in_mode(Mode::stored, budget).micro.fits) continue;
      for (const plan::StepSize& size : search.sizes_to_measure(budget)) {
        const auto known = std::find(all.begin(), all.end(), size);
        if (known == all.end()) {
          all.push_back(size);
        } else {
          known->overlapped = known->overlapped || size.overlapped;
        }
      }
    }
    return all;
  }

  // The reference keeps everything, as stored training does, and two sets of gradients are there.
  std::int64_t verifiable_batch() const {
    const double samples = static_cast<double>(case_.batch);
    const double weights = 3.0 * shape_.weight_bytes;
    if (weights + shape_.stored_bytes <= memory_) return case_.batch;
    return weights + shape_.stored_bytes / samples <= memory_ ? 1 : 0;
  }

  bool verify_gradients(models::Model& model) {
    const std::int64_t batch = verifiable_batch();
    if (batch == 0) return true;
    tell("comparing gradients", 0.0);
    VerifyOptions asked{.modes = {},
                        .plans = {},
                        .batch = batch,
                        .precision = case_.precision,
                        .arithmetic = case_.arithmetic,
                        .seed = case_.seed};
    for (const Entry& entry : entries_) {
      if (!entry.row.fits) continue;
      if (is_planned(entry)) {
        asked.plans.push_back(entry.plan);
      } else {
        asked.modes.push_back(entry.who.mode);
      }
    }
    std::vector<VerifyRow> rows = verify(model, asked);
    std::string wrong;
    for (const VerifyRow& row : rows) {
      if (!row.holds) wrong += (wrong.empty() ? "" : ", ") + std::string(name(row.mode));
    }
    auto row = rows.begin();
    for (Entry& entry : entries_) {
      if (!entry.row.fits) continue;
      entry.row.verified_batch = batch;
      if (!wrong.empty()) {
        entry.row.error = row->holds ? "not timed: gradients are wrong in mode " + wrong
                                     : "gradients are wrong: " + complaint(*row, case_.precision);
      }
      ++row;
    }
    return wrong.empty();
  }

  void time_steps(models::Model& model, Entry*& running) {
    MeasureOptions asked{.modes = {},
                         .plans = {},
                         .batch = case_.batch,
                         .precision = case_.precision,
                         .arithmetic = case_.arithmetic,
                         .rounds = options_.rounds,
                         .steps = options_.steps,
                         .seed = case_.seed,
                         .forward_macs = shape_.forward_macs};
    std::vector<Entry*> contestants;
    for (Entry& entry : entries_) {
      if (!entry.row.fits) continue;
      contestants.push_back(&entry);
      if (is_planned(entry)) {
        asked.plans.push_back({entry.who.budget, entry.plan, entry.parts});
      } else {
        asked.modes.push_back(entry.who.mode);
      }
    }
    asked.on_turn = [&](const Contestant& who, int round) {
      running = *std::find_if(contestants.begin(), contestants.end(),
                              [&](const Entry* entry) { return entry->who == who; });
      const auto turn =
          static_cast<double>(round) +
          static_cast<double>(running - entries_.data()) / static_cast<double>(entries_.size());
      tell(words(who) + ", " + round_text(round), std::min(1.0, turn / (options_.rounds + 2)));
    };
    const std::vector<MeasureRow> rows = measure(model, asked);
    for (std::size_t i = 0; i < rows.size(); ++i) fill(contestants[i]->row, rows[i]);
  }

  std::string round_text(int round) const {
    if (round == 0) return "first step";
    if (round > options_.rounds) return "traced step";
    return "round " + std::to_string(round) + " of " + std::to_string(options_.rounds);
  }

  static void fill(ResultRow& row, const MeasureRow& seen) {
    const double seconds = seen.median_ms() / 1e3;
    row.timed_steps = static_cast<int>(seen.step_ms.size());
    row.step_ms = seen.median_ms();
    row.step_ms_best = seen.best_ms();
    row.step_ms_p10 = quantile(seen.step_ms, 0.1);
    row.step_ms_p90 = quantile(seen.step_ms, 0.9);
    row.forward_ms = quantile(seen.forward_ms, 0.5);
    row.backward_ms = quantile(seen.backward_ms, 0.5);
    row.samples_per_s = static_cast<double>(row.batch) / seconds;
    row.activation_peak_bytes = seen.activation_peak_bytes;
    row.peak_bytes = seen.peak_bytes;
    row.reserved_peak_bytes = seen.reserved_peak_bytes;
    row.flops_per_step = seen.flops_per_step;
    row.gflops = seen.flops_per_step / seconds / 1e9;
    row.loss = seen.loss;
    row.recover_ms = seen.tasks.recover_ms;
    row.gradient_ms = seen.tasks.gradient_ms;
    row.weight_gradient_ms = seen.tasks.weight_gradient_ms;
    row.overlap_ms = seen.tasks.overlap_ms;
  }

  const Case& case_;
  const CaseShape& shape_;
  const RunOptions& options_;
  const double memory_;
  const IntraOpThreads threads_;
  std::vector<Entry> entries_;
};

}  // namespace

std::vector<ResultRow> run_case(const Case& one, const CaseShape& shape,
                                const RunOptions& options) {
  return CaseRun(one, shape, options).run();
}

}  // namespace pareprop::sweep
