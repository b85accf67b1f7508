#include "pareprop/train/best_weights.h"

#include <array>
#include <charconv>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "pareprop/io/safetensors.h"
#include "pareprop/models/weights.h"
#include "pareprop/train/run_folder.h"

namespace pareprop::train {
namespace {

constexpr const char* kStep = "step";
constexpr const char* kLoss = "evaluation_loss";
constexpr const char* kAccuracy = "evaluation_accuracy";

// The shortest digits that are read back as the same number.
std::string digits(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

template <typename Number>
std::optional<Number> number(const io::SafetensorsMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const std::string& text = found->second;
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<WeightsOf> origin_of(const io::SafetensorsFile& file) {
  const auto step = number<std::int64_t>(file.metadata(), kStep);
  if (!step) return std::nullopt;
  return WeightsOf{.step = *step,
                   .evaluation_loss = number<double>(file.metadata(), kLoss),
                   .evaluation_accuracy = number<double>(file.metadata(), kAccuracy).value_or(0.0)};
}

}  // namespace

void save_run_weights(const models::Model& model, const std::filesystem::path& file,
                      const WeightsOf& origin) {
  io::SafetensorsMetadata metadata{{kStep, std::to_string(origin.step)}};
  if (origin.evaluation_loss) {
    metadata[kLoss] = digits(*origin.evaluation_loss);
    metadata[kAccuracy] = digits(origin.evaluation_accuracy);
  }
  check_file_of_run(file);
  models::save_weights(model, file, models::own_names(model), std::move(metadata));
}

std::optional<WeightsOf> load_run_weights(models::Model& model, const std::filesystem::path& path) {
  const io::SafetensorsFile file(path, path.parent_path());
  models::load_weights(model, file);
  return origin_of(file);
}

BestWeights::BestWeights(std::filesystem::path file) : file_(std::move(file)) {
  try {
    if (!std::filesystem::exists(file_)) return;
    const io::SafetensorsFile kept(file_, file_.parent_path());
    kept.verify_seal();
    best_ = origin_of(kept);
  } catch (const std::exception&) {  // damaged: the next evaluation replaces it
  }
}

void BestWeights::forget_after(std::int64_t step) {
  if (!best_ || best_->step <= step) return;
  best_.reset();
  std::filesystem::remove(file_);
}

void BestWeights::offer(const models::Model& model, std::int64_t step, const Evaluation& found) {
  const WeightsOf origin{
      .step = step, .evaluation_loss = found.loss, .evaluation_accuracy = found.accuracy};
  const bool better = !best_ || !best_->evaluation_loss ? found.loss == found.loss
                                                        : found.loss < *best_->evaluation_loss;
  if (!better) return;
  save_run_weights(model, file_, origin);
  best_ = origin;
}

}  // namespace pareprop::train
