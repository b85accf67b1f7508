#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "pareprop/models/model.h"
#include "pareprop/train/evaluate.h"

namespace pareprop::train {

// Which weights a file of a run holds.
struct WeightsOf {
  std::int64_t step = 0;
  std::optional<double> evaluation_loss = std::nullopt;  // none: not evaluated
  double evaluation_accuracy = 0.0;
};

// Writes the model's weights with their origin and a checksum, whole or not at all.
void save_run_weights(const models::Model& model, const std::filesystem::path& file,
                      const WeightsOf& origin);

// Loads them; throws std::runtime_error when the file is damaged, std::invalid_argument when it is
// not of this network. None where the file does not say where its weights come from.
std::optional<WeightsOf> load_run_weights(models::Model& model, const std::filesystem::path& file);

// The weights that had the lowest evaluation loss of a run, in a file of their own beside the last.
class BestWeights {
 public:
  // Goes on with what the file has; one that is damaged or of another program counts as none.
  explicit BestWeights(std::filesystem::path file);

  // Removes weights of a later step than this one: training goes on from here, without them.
  void forget_after(std::int64_t step);

  // Keeps the model's weights when `found` is better than the best so far. A loss that is not a
  // number never is.
  void offer(const models::Model& model, std::int64_t step, const Evaluation& found);

  const std::optional<WeightsOf>& best() const { return best_; }

 private:
  const std::filesystem::path file_;
  std::optional<WeightsOf> best_;
};

}  // namespace pareprop::train
