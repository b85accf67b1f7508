#include "pareprop/sweep/result_row.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace pareprop::sweep {
namespace {

using nlohmann::ordered_json;

// Calls `visit(key, field)` for every field, in the order they are written.
template <typename Row, typename Visit>
void visit_fields(Row& row, Visit visit) {
  visit("case", row.case_name);
  visit("model", row.model);
  visit("family", row.family);
  visit("plain", row.plain);
  visit("mode", row.mode);
  visit("budget_bytes", row.budget_bytes);
  visit("precision", row.precision);
  visit("arithmetic", row.arithmetic);
  visit("batch", row.batch);
  visit("depth", row.depth);
  visit("tokens", row.tokens);
  visit("threads", row.threads);
  visit("fits", row.fits);
  visit("verified_batch", row.verified_batch);
  visit("error", row.error);
  visit("timed_steps", row.timed_steps);
  visit("step_ms", row.step_ms);
  visit("step_ms_best", row.step_ms_best);
  visit("step_ms_p10", row.step_ms_p10);
  visit("step_ms_p90", row.step_ms_p90);
  visit("forward_ms", row.forward_ms);
  visit("backward_ms", row.backward_ms);
  visit("samples_per_s", row.samples_per_s);
  visit("activation_peak_bytes", row.activation_peak_bytes);
  visit("peak_bytes", row.peak_bytes);
  visit("reserved_peak_bytes", row.reserved_peak_bytes);
  visit("predicted_peak_bytes", row.predicted_peak_bytes);
  visit("smallest_budget_bytes", row.smallest_budget_bytes);
  visit("parts", row.parts);
  visit("flops_per_step", row.flops_per_step);
  visit("gflops", row.gflops);
  visit("loss", row.loss);
  visit("recover_ms", row.recover_ms);
  visit("gradient_ms", row.gradient_ms);
  visit("weight_gradient_ms", row.weight_gradient_ms);
  visit("overlap_ms", row.overlap_ms);
}

void read(const ordered_json& value, std::string& into) { into = value.get<std::string>(); }
void read(const ordered_json& value, bool& into) { into = value.get<bool>(); }
void read(const ordered_json& value, double& into) {
  into = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}
template <typename Whole>
void read(const ordered_json& value, Whole& into) {
  if (!value.is_number_integer()) throw std::invalid_argument("expected a whole number");
  into = value.get<Whole>();
}

}  // namespace

bool ResultRow::same_as(const ResultRow& other) const {
  return case_name == other.case_name && mode == other.mode && budget_bytes == other.budget_bytes;
}

std::string to_json(const ResultRow& row) {
  ordered_json out;
  visit_fields(row, [&](const char* key, const auto& value) { out[key] = value; });
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ResultRow parse_row(std::string_view text) {
  const auto parsed = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) throw std::invalid_argument("expected a JSON object");
  ResultRow row;
  visit_fields(row, [&](const char* key, auto& value) {
    const auto found = parsed.find(key);
    if (found == parsed.end()) {
      // Files of earlier versions do not have these.
      const std::string_view name = key;
      if (name == "parts" || name == "reserved_peak_bytes" || name == "smallest_budget_bytes") {
        return;
      }
      throw std::invalid_argument(std::string("the key '") + key + "' is missing");
    }
    try {
      read(*found, value);
    } catch (const std::exception&) {
      throw std::invalid_argument(
          std::string("'") + key + "' has the wrong type: " +
          found->dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    }
  });
  return row;
}

std::vector<ResultRow> latest(const std::vector<ResultRow>& rows) {
  std::vector<ResultRow> out;
  for (const ResultRow& row : rows) {
    const auto known = std::find_if(out.begin(), out.end(),
                                    [&](const ResultRow& other) { return other.same_as(row); });
    if (known == out.end()) {
      out.push_back(row);
    } else {
      *known = row;
    }
  }
  return out;
}

}  // namespace pareprop::sweep
