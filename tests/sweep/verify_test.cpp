#include "pareprop/sweep/verify.h"

#include <gtest/gtest.h>

#include "pareprop/models/registry.h"

namespace pareprop {
namespace {

std::shared_ptr<models::Model> small(const std::string& family, int depth, Precision precision) {
  models::Overrides overrides{.depths = {depth}, .width = 48, .dropout = 0.1, .drop_path = 0.2};
  if (family == "roberta_base") {
    overrides.length = 20;
    overrides.vocabulary = 97;
  } else {
    // In Swin maps of 9 x 9 and 5 x 5: windows of 4 are padded, and merging has an odd map. In MViT
    // maps from 9 x 9 to 2 x 2, three of them odd.
    overrides.image_size = family == "vit_tiny" ? 64 : 36;
    if (family.starts_with("mvit")) overrides.width = 16;
  }
  return models::make_model(family, overrides, {.dtype = stream_dtype(precision)});
}

TEST(Verify, HoldsForEveryModePrecisionAndArithmeticAtOddAndEvenDepths) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
    for (Arithmetic arithmetic : {Arithmetic::floating, Arithmetic::exact}) {
      for (int depth : {1, 4, 7}) {
        for (const char* family :
             {"vit_tiny", "swin_cifar", "mvit_tiny", "mvit_cifar", "roberta_base"}) {
          auto model = small(family, depth, precision);
          // Every policy, from the lowest block on, in lanes.
          StepPlan mixed = model->plan_of(Mode::pareprop);
          std::size_t block = 0;
          for (StackPlan& stack : mixed.stacks) {
            for (Policy& policy : stack.policies) policy = kPolicies[block++ % kPolicies.size()];
          }
          const StepPlan before = model->plan();
          const auto rows =
              verify(*model, {.plans = {mixed}, .precision = precision, .arithmetic = arithmetic});
          EXPECT_EQ(model->plan(), before);
          ASSERT_EQ(rows.size(), 5u);
          for (const VerifyRow& row : rows) {
            EXPECT_TRUE(row.holds) << family << " " << name(row.mode) << " " << name(precision)
                                   << " " << name(arithmetic) << " depth " << depth << " error "
                                   << row.max_rel_error << " " << row.error;
            EXPECT_EQ(row.missing_gradients, 0);
            if (arithmetic == Arithmetic::exact) {
              EXPECT_TRUE(row.bit_identical) << name(row.mode);
              EXPECT_EQ(row.drift, 0.0);
            }
          }
        }
      }
    }
  }
}

// A network whose lowest F computes something else each time.
class Forgetful : public models::Model {
 public:
  Forgetful() {
    const auto count = std::make_shared<int>(0);
    weight_ = register_parameter("weight", at::full({4}, 0.3));
    const Branch broken(
        [count, w = weight_](const at::Tensor& x, const BranchCall&) {
          return x.mul(w).mul(1 + ++*count % 3);
        },
        {weight_});
    const Branch fine(
        [w = weight_](const at::Tensor& x, const BranchCall&) { return x.mul(w).tanh(); },
        {weight_});
    stack_ = add_stack(*this, "blocks", {{broken, fine}, {fine, fine}});
  }
  at::Tensor forward(const models::Batch& batch, const models::ForwardOptions& options) override {
    const CallOptions call{.pass = pass_for(options)};
    const at::Tensor& x = batch.input;
    const auto y = options.reference ? stack_->reference(x, x, call) : stack_->forward(x, x, call);
    return y.first.add(y.second);
  }
  models::Batch example(std::int64_t batch, std::uint64_t) const override {
    return {.input = at::ones({batch, 4}), .target = at::zeros({batch}, at::kLong)};
  }
  std::int64_t tokens() const override { return 1; }

 private:
  at::Tensor weight_;
  Stack stack_{nullptr};
};

TEST(Verify, ABrokenBranchIsReportedNotThrown) {
  Forgetful model;
  int broken = 0;
  for (const VerifyRow& row : verify(model)) {
    broken += row.holds ? 0 : 1;
    if (row.mode == Mode::reprop) {
      EXPECT_NE(row.error.find("block 0, branch F"), std::string::npos) << row.error;
    }
  }
  EXPECT_GE(broken, 3);
}

}  // namespace
}  // namespace pareprop
