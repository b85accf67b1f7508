#include "pareprop/models/named_tensors.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "pareprop/models/registry.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::models {
namespace {

TEST(NamedTensors, FrozenParametersAreNotTrained) {
  const auto model = models::make_model("vit_tiny", {.depths = {1}}, {.device = at::kMeta});
  const auto all = trained_parameters(*model);
  EXPECT_EQ(all.size(), model->parameters().size());
  model->named_parameters()["head.bias"].requires_grad_(false);
  EXPECT_EQ(trained_parameters(*model).size(), all.size() - 1);
}

// Through a file, as everything that is loaded.
void copy_through_file(const io::NamedTensors& from, const io::NamedTensors& into,
                       const std::string& what) {
  const io::testing::TemporaryFolder folder;
  io::write_safetensors(folder / "a", from);
  copy_named(io::SafetensorsFile(folder / "a"), into, what);
}

TEST(NamedTensors, AreCopiedWhateverTheirOrder) {
  const io::NamedTensors into = {{"a", at::zeros({2})}, {"b", at::zeros({})}};
  copy_through_file({{"b", at::full({}, 2.0)}, {"a", at::full({2}, 1.0)}}, into, "it");
  EXPECT_EQ(into[0].second.sum().item<double>(), 2.0);
  EXPECT_EQ(into[1].second.item<double>(), 2.0);
}

TEST(NamedTensors, EverythingThatDoesNotFitIsListedAndNothingChanged) {
  const io::NamedTensors into = {{"a", at::zeros({2})}, {"b", at::zeros({3})}, {"c", at::zeros(1)}};
  const auto message = io::testing::message_of<std::invalid_argument>([&] {
    copy_through_file({{"a", at::full({2}, 1.0)}, {"b", at::full({2}, 1.0)}, {"d", at::zeros(1)}},
                      into, "the state");
  });
  EXPECT_EQ(message,
            "the state does not fit this network and was not loaded:\n"
            "  b is Float [2], expected Float [3]\n  c is missing\n  d is not expected");
  EXPECT_EQ(into[0].second.sum().item<double>(), 0.0);
}

}  // namespace
}  // namespace pareprop::models
