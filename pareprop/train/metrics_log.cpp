#include "pareprop/train/metrics_log.h"

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <system_error>

#include "pareprop/io/atomic_file.h"
#include "pareprop/io/input_file.h"

namespace pareprop::train {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEvaluationLoss = "eval_loss";

ordered_json json_of(const StepRecord& r) {
  return {{"step", r.step},
          {"epoch", r.epoch},
          {"loss", r.loss},
          {"accuracy", r.accuracy},
          {"learning_rate", r.learning_rate},
          {"gradient_norm", r.gradient_norm},
          {"samples_per_s", r.samples_per_s},
          {"waited", r.waited},
          {"drift", r.drift},
          {"peak_bytes", r.peak_bytes},
          {"reserved_peak_bytes", r.reserved_peak_bytes},
          {"predicted_peak_bytes", r.predicted_peak_bytes}};
}

ordered_json json_of(const EvaluationRecord& r) {
  return {{"step", r.step}, {kEvaluationLoss, r.loss}, {"eval_accuracy", r.accuracy}};
}

// Numbers that are not finite were written as null.
double number(const ordered_json& line, const char* key) {
  const auto found = line.find(key);
  if (found != line.end() && found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
}

StepRecord step_of(const ordered_json& line) {
  return {.step = line.at("step").get<std::int64_t>(),
          .epoch = number(line, "epoch"),
          .loss = number(line, "loss"),
          .accuracy = number(line, "accuracy"),
          .learning_rate = number(line, "learning_rate"),
          .gradient_norm = number(line, "gradient_norm"),
          .samples_per_s = number(line, "samples_per_s"),
          .waited = number(line, "waited"),
          .drift = number(line, "drift"),
          .peak_bytes = static_cast<std::int64_t>(number(line, "peak_bytes")),
          .reserved_peak_bytes = static_cast<std::int64_t>(number(line, "reserved_peak_bytes")),
          .predicted_peak_bytes = static_cast<std::int64_t>(number(line, "predicted_peak_bytes"))};
}

EvaluationRecord evaluation_of(const ordered_json& line) {
  return {.step = line.at("step").get<std::int64_t>(),
          .loss = number(line, kEvaluationLoss),
          .accuracy = number(line, "eval_accuracy")};
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& folder, std::int64_t step,
                       std::int64_t evaluated)
    : path_(folder / "metrics.jsonl"), events_(folder / "tensorboard") {
  const bool begun_before = std::filesystem::exists(path_);
  keep_until(step, evaluated);
  if (begun_before) events_.restart_at(step + 1);
  lines_.open(path_, std::ios::app);
  if (!lines_) throw std::system_error(errno, std::generic_category(), path_.string());
}

void MetricsLog::keep_until(std::int64_t step, std::int64_t evaluated) {
  std::string kept;
  if (std::filesystem::exists(path_)) {
    std::istringstream before(
        io::read_text_file(path_, {.most_bytes = io::kAnySize, .within = path_.parent_path()}));
    for (std::string line; std::getline(before, line);) {
      const auto parsed = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer()) {
        continue;
      }
      const bool is_evaluation = parsed.contains(kEvaluationLoss);
      if (parsed["step"].get<std::int64_t>() > (is_evaluation ? evaluated : step)) continue;
      kept += line + "\n";
      if (is_evaluation) {
        evaluations_.push_back(evaluation_of(parsed));
      } else {
        steps_.push_back(step_of(parsed));
      }
    }
  }
  io::write_file(path_, kept);
}

void MetricsLog::write(const std::string& line) {
  const auto whole = std::filesystem::file_size(path_);
  lines_ << line << '\n' << std::flush;
  if (lines_) return;
  const std::system_error error(errno, std::generic_category(), path_.string());
  // Not half a line of a full disk. The stream holds the rest of it and would write it when it is
  // closed, so that comes first.
  lines_.close();
  std::error_code ignored;
  std::filesystem::resize_file(path_, whole, ignored);
  throw error;
}

void MetricsLog::add(const StepRecord& r) {
  steps_.push_back(r);
  write(json_of(r).dump());
  events_.add(r.step, {{"train/loss", static_cast<float>(r.loss)},
                       {"train/accuracy", static_cast<float>(r.accuracy)},
                       {"train/learning_rate", static_cast<float>(r.learning_rate)},
                       {"train/gradient_norm", static_cast<float>(r.gradient_norm)},
                       {"speed/samples_per_s", static_cast<float>(r.samples_per_s)},
                       {"speed/waited_for_data", static_cast<float>(r.waited)},
                       {"memory/peak_bytes", static_cast<float>(r.peak_bytes)},
                       {"train/drift", static_cast<float>(r.drift)}});
}

void MetricsLog::add(const EvaluationRecord& r) {
  evaluations_.push_back(r);
  write(json_of(r).dump());
  events_.add(r.step, {{"eval/loss", static_cast<float>(r.loss)},
                       {"eval/accuracy", static_cast<float>(r.accuracy)}});
}

}  // namespace pareprop::train
