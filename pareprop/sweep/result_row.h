#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop::sweep {

// What was seen of one case in one mode. The names are the keys of its JSON, `case_name` is `case`.
struct ResultRow {
  std::string case_name = {};
  std::string model = {};
  std::string family = {};
  bool plain = false;
  std::string mode = {};
  std::int64_t budget_bytes = 0;  // 0: none was named
  std::string precision = {};
  std::string arithmetic = {};
  std::int64_t batch = 0;
  int depth = 0;
  std::int64_t tokens = 0;
  int threads = 0;

  bool fits = true;                 // in the memory there was; when not, nothing below is known
  std::int64_t verified_batch = 0;  // samples its gradients were compared with; 0: none
  std::string error = {};           // why it was not timed: its gradients are wrong

  int timed_steps = 0;
  double step_ms = 0.0;  // median
  double step_ms_best = 0.0;
  double step_ms_p10 = 0.0;
  double step_ms_p90 = 0.0;
  double forward_ms = 0.0;   // median
  double backward_ms = 0.0;  // median
  double samples_per_s = 0.0;
  std::int64_t activation_peak_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t reserved_peak_bytes = 0;    // by the allocator of an accelerator
  std::int64_t predicted_peak_bytes = 0;   // of a budget; 0: none
  std::int64_t smallest_budget_bytes = 0;  // where a budget is too small
  std::int64_t parts = 1;                  // that the batch was computed in
  double flops_per_step = 0.0;
  double gflops = 0.0;
  double loss = 0.0;
  // Busy time of tasks in the backward pass of one more step.
  double recover_ms = 0.0;
  double gradient_ms = 0.0;
  double weight_gradient_ms = 0.0;
  double overlap_ms = 0.0;

  bool timed() const { return fits && error.empty(); }
  bool same_as(const ResultRow& other) const;  // case, mode and budget
};

// One line without its end. Numbers that are not finite become null.
std::string to_json(const ResultRow& row);

// Throws std::invalid_argument when a key is missing or has a value of another kind. Keys it does
// not know are left alone.
ResultRow parse_row(std::string_view json);

// Of rows that are the same, the last: a case that was measured again.
std::vector<ResultRow> latest(const std::vector<ResultRow>& rows);

}  // namespace pareprop::sweep
