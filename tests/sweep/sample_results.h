#pragma once

#include <string>
#include <vector>

#include "pareprop/sweep/results_file.h"
#include "pareprop/sweep/sweep.h"

namespace pareprop::sweep::testing {

// Rows of every mode of a case, whose speeds and bytes are known: pareprop is 1.2 times as fast as
// reprop, and takes a tenth of what stored takes.
inline std::vector<sweep::ResultRow> rows_of(const std::string& model, std::int64_t batch,
                                             int depth = 0) {
  struct Known {
    const char* mode;
    double speed, memory;
  };
  sweep::Case one{.model = model, .batch = batch, .threads = 2};
  if (depth > 0) one.change.depths = {depth};
  const int blocks = depth > 0 ? depth : 12;
  std::vector<sweep::ResultRow> rows;
  for (const Known& known :
       {Known{"stored", 1.0, 1.0}, Known{"checkpoint", 0.7, 0.3}, Known{"reprop", 0.75, 0.05},
        Known{"pareprop", 0.9, 0.1}, Known{"auto", 0.95, 0.9}}) {
    sweep::ResultRow row{.case_name = one.name(),
                         .model = model,
                         .family = sweep::family_of(model),
                         .mode = known.mode,
                         .precision = "fp32",
                         .arithmetic = "float",
                         .batch = batch,
                         .depth = blocks,
                         .tokens = 197,
                         .threads = 2,
                         .verified_batch = batch,
                         .timed_steps = 10};
    row.samples_per_s =
        100.0 * known.speed * static_cast<double>(batch) / static_cast<double>(batch + 1);
    row.step_ms = 1e3 * static_cast<double>(batch) / row.samples_per_s;
    row.step_ms_best = 0.9 * row.step_ms;
    row.step_ms_p10 = 0.95 * row.step_ms;
    row.step_ms_p90 = 1.3 * row.step_ms;
    row.forward_ms = 0.3 * row.step_ms;
    row.backward_ms = 0.7 * row.step_ms;
    row.activation_peak_bytes =
        static_cast<std::int64_t>(known.memory * static_cast<double>(batch * blocks) * (1 << 20));
    row.peak_bytes = row.activation_peak_bytes + (20 << 20);
    row.recover_ms = row.mode == "stored" ? 0.0 : 0.2 * row.step_ms;
    row.gradient_ms = 0.4 * row.step_ms;
    row.weight_gradient_ms = row.mode == "pareprop" ? 0.1 * row.step_ms : 0.0;
    row.overlap_ms = row.mode == "pareprop" ? 0.15 * row.step_ms : 0.0;
    rows.push_back(std::move(row));
  }
  return rows;
}

inline void add(std::vector<sweep::ResultRow>& to, const std::vector<sweep::ResultRow>& rows) {
  to.insert(to.end(), rows.begin(), rows.end());
}

// Four families, a batch and a depth series, budgets, one case that does not fit and one wrong.
inline sweep::Results sample_results() {
  sweep::Results results{.machine = {"A CPU <with> & signs", 2, "2.13.0"},
                         .date = "2026-11-16T07:00:00Z"};
  for (const char* model : {"vit_cifar", "swin_cifar", "mvit_cifar", "roberta_base"}) {
    for (const std::int64_t batch : {1, 2, 4, 8}) add(results.rows, rows_of(model, batch));
  }
  for (const int depth : {4, 8, 16}) add(results.rows, rows_of("vit_cifar", 4, depth));
  for (const std::int64_t mib : {30, 60, 90}) {
    sweep::ResultRow row = rows_of("vit_cifar", 8).back();
    row.budget_bytes = mib << 20;
    row.activation_peak_bytes = (mib - 22) << 20;
    row.samples_per_s *= 0.7 + static_cast<double>(mib) / 400.0;
    results.rows.push_back(row);
  }
  sweep::ResultRow large = rows_of("vit_cifar", 4096).front();
  large.fits = false;
  sweep::ResultRow wrong = rows_of("vit_cifar", 3).front();
  wrong.error = "gradients are wrong: max_rel_error 0.5 is above the tolerance 1e-05";
  results.rows.push_back(large);
  results.rows.push_back(wrong);
  return results;
}

}  // namespace pareprop::sweep::testing
