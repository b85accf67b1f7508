#include "pareprop/train/predict.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>

#include "pareprop/data/images/image_codec.h"
#include "pareprop/data/text/masked_text.h"
#include "pareprop/data/text/token_masking.h"
#include "pareprop/io/input_file.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/roberta.h"
#include "pareprop/train/model_for_data.h"

namespace pareprop::train {
namespace {

// For each row of the scores.
template <typename Name>
std::vector<std::vector<Guess>> best(const at::Tensor& scores, int top, Name name) {
  const auto count = std::min<std::int64_t>(top, scores.size(1));
  const auto [values, indices] = at::topk(at::softmax(scores.to(at::kCPU, at::kDouble), -1), count);
  std::vector<std::vector<Guess>> rows;
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    std::vector<Guess>& guesses = rows.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      guesses.push_back(
          {name(indices[row][i].item<std::int64_t>()), values[row][i].item<double>()});
    }
  }
  return rows;
}

auto class_names_of(const TrainedRun& run) {
  return [&names = run.class_names](std::int64_t i) {
    return names.empty() ? "class " + std::to_string(i) : names.at(static_cast<std::size_t>(i));
  };
}

data::Image read_image(const std::filesystem::path& file) {
  const auto bytes = io::read_binary_file(file, {.most_bytes = data::kMaxImageBytes});
  try {
    return data::decode_image(bytes);
  } catch (const std::exception& error) {
    throw std::runtime_error("cannot read '" + file.string() + "': " + error.what());
  }
}

}  // namespace

std::vector<Guess> predict_image(const TrainedRun& run, const std::filesystem::path& file,
                                 int top) {
  const auto* model = dynamic_cast<const models::ImageModel*>(run.model.get());
  if (model == nullptr) {
    throw std::invalid_argument("the run was trained on text: expected a text with <mask>, got " +
                                file.string());
  }
  expect_one_class(run);
  const data::Image image = read_image(file);
  const auto side = static_cast<int>(model->shape().image_size);
  const auto channels = static_cast<int>(model->shape().channels);
  const data::ImageSize input{side, side};
  const data::View view = data::centre_view(run.augment, image.size(), input);
  const at::Tensor pixels = at::empty({1, channels, side, side}, at::kFloat);
  data::render(run.augment, view, image.size(), image, channels, input,
               pixels.mutable_data_ptr<float>());
  c10::NoGradGuard no_grad;
  const at::Tensor scores =
      run.model->forward(to_model({.input = pixels, .target = {}}, *run.model));
  return best(scores, top, class_names_of(run)).front();
}

std::vector<std::vector<Guess>> predict_text(const TrainedRun& run, std::string_view text,
                                             int top) {
  if (dynamic_cast<const models::ImageModel*>(run.model.get()) != nullptr) {
    throw std::invalid_argument("the run was trained on images: expected the path of an image");
  }
  if (const std::string why = lacks_tokenizer(run); !why.empty()) throw std::invalid_argument(why);
  const bool classifies = models::classifies_texts(*run.model);
  if (classifies) expect_one_class(run);
  if (!classifies && text.find(data::kMaskText) == std::string_view::npos) {
    throw std::invalid_argument("expected a text with <mask> in the place of the word to guess");
  }
  const std::vector<std::int64_t> ids = data::encode_masked(*run.tokenizer, text);
  if (static_cast<std::int64_t>(ids.size()) > run.model->tokens()) {
    throw std::invalid_argument("the text has " + std::to_string(ids.size()) +
                                " tokens; expected at most " + std::to_string(run.model->tokens()) +
                                ": shorten the text");
  }
  const at::Tensor input = at::tensor(ids).unsqueeze(0);
  c10::NoGradGuard no_grad;
  if (classifies) {
    const data::Batch whole{.input = input, .target = {}};
    return best(run.model->forward(to_model(whole, *run.model)), top, class_names_of(run));
  }
  const at::Tensor target = at::full_like(input, data::kNotScored);
  target.masked_fill_(input.eq(run.tokenizer->mask()), run.tokenizer->mask());
  const at::Tensor scores =
      run.model->forward(to_model({.input = input, .target = target}, *run.model));
  return best(scores, top, [&](std::int64_t id) {
    const auto token = static_cast<data::TokenId>(id);
    return run.tokenizer->decode({&token, 1});
  });
}

}  // namespace pareprop::train
