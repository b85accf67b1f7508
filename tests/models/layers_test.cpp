#include "pareprop/models/layers.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace pareprop::models {
namespace {

class WithOneConstant : public ModuleWithConstants {
 public:
  WithOneConstant() { register_parameter("weight", at::ones({2})); }
  at::Tensor constant = at::ones({3});

 private:
  void place_constants(const at::TensorOptions& weights) override {
    constant = constant.to(weights);
  }
};

TEST(Layers, ConstantsMoveWithTheWeightsOfTheNetwork) {
  torch::nn::Module network("network");
  const auto part = network.register_module("part", std::make_shared<WithOneConstant>());
  network.to(at::kDouble);
  EXPECT_EQ(part->constant.scalar_type(), at::kDouble);
  network.to(at::kCPU, at::kFloat);
  EXPECT_EQ(part->constant.scalar_type(), at::kFloat);
  EXPECT_FALSE(part->constant.requires_grad());
  EXPECT_TRUE(network.buffers().empty());
}

TEST(Layers, DropPathGrowsFromZeroToTheRateOfTheNetwork) {
  const DropRates drop{.dropout = 0.1, .drop_path = 0.4};
  EXPECT_EQ(drop_of_block(drop, 0, 5).drop_path, 0.0);
  EXPECT_DOUBLE_EQ(drop_of_block(drop, 3, 5).drop_path, 0.3);
  EXPECT_EQ(drop_of_block(drop, 4, 5).drop_path, 0.4);
  EXPECT_EQ(drop_of_block(drop, 3, 5).dropout, 0.1);
}

}  // namespace
}  // namespace pareprop::models
