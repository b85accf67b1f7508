#include "pareprop/train/score_file.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pareprop/io/safetensors.h"
#include "pareprop/models/image_model.h"
#include "pareprop/train/model_for_data.h"

namespace pareprop::train {
namespace {

at::Tensor expected(const io::SafetensorsFile& file, const std::string& name, std::size_t dims,
                    bool floating) {
  if (!file.contains(name)) {
    throw std::invalid_argument(file.path().string() + " has no tensor " + name +
                                "; expected pixel_values for images, input_ids for text");
  }
  const auto& entry = file.entry(name);
  const bool fits =
      at::isFloatingType(io::torch_type(entry.dtype)) == floating && entry.shape.size() == dims;
  if (!fits) {
    throw std::invalid_argument(
        file.path().string() + ": " + name + " is " + std::string(io::name(entry.dtype)) + " of " +
        std::to_string(entry.shape.size()) + " dimensions; expected " +
        (floating ? "floating-point numbers of " : "whole numbers of ") + std::to_string(dims));
  }
  return file.tensor(name);
}

}  // namespace

std::int64_t score_file(const TrainedRun& run, const std::filesystem::path& inputs,
                        const std::filesystem::path& scores, std::int64_t batch) {
  const io::SafetensorsFile file(inputs);
  data::Batch all;
  if (dynamic_cast<const models::ImageModel*>(run.model.get()) != nullptr) {
    all.input = expected(file, "pixel_values", 4, true).to(at::kFloat);
  } else {
    all.input = expected(file, "input_ids", 2, false).to(at::kLong);
    if (file.contains("attention_mask")) {
      all.mask = expected(file, "attention_mask", 2, false).ne(0);
    }
    if (file.contains("token_type_ids") &&
        expected(file, "token_type_ids", 2, false).ne(0).any().item<bool>()) {
      throw std::invalid_argument(
          inputs.string() + ": networks here have one kind of token: expected token_type_ids of 0");
    }
  }
  c10::NoGradGuard no_grad;
  const std::int64_t count = all.input.size(0);
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < count; first += batch) {
    const std::int64_t length = std::min(batch, count - first);
    data::Batch part{.input = all.input.narrow(0, first, length), .target = {}};
    if (all.mask.defined()) part.mask = all.mask.narrow(0, first, length);
    parts.push_back(run.model->forward(to_model(part, *run.model)).to(at::kCPU, at::kFloat));
  }
  if (parts.empty()) throw std::invalid_argument(inputs.string() + " has no inputs");
  io::write_safetensors(scores, {{"logits", at::cat(parts, 0)}});
  return count;
}

}  // namespace pareprop::train
