#include "pareprop/verify/verify.h"

#include <gtest/gtest.h>

#include "pareprop/models/registry.h"

namespace pareprop {
namespace {

models::Overrides small(int depth) {
  return {.depth = depth, .width = 48, .image_size = 64, .dropout = 0.1, .drop_path = 0.2};
}

TEST(Verify, HoldsForEveryModePrecisionAndArithmeticAtOddAndEvenDepths) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
    for (Arithmetic arithmetic : {Arithmetic::floating, Arithmetic::exact}) {
      for (int depth : {1, 4, 7}) {
        auto model =
            models::make_model("vit_tiny", small(depth), {.dtype = stream_dtype(precision)});
        const auto rows = verify(*model, {.precision = precision, .arithmetic = arithmetic});
        ASSERT_EQ(rows.size(), 5u);
        for (const VerifyRow& row : rows) {
          EXPECT_TRUE(row.holds) << name(row.mode) << " " << name(precision) << " "
                                 << name(arithmetic) << " depth " << depth << " error "
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
    stack_ = add_stack("blocks", {{broken, fine}, {fine, fine}});
  }
  at::Tensor forward(const at::Tensor& x, const models::ForwardOptions& options) override {
    const CallOptions call{.pass = pass_for(options)};
    const auto y = options.reference ? stack_->reference(x, x, call) : stack_->forward(x, x, call);
    return y.first.add(y.second);
  }
  at::Tensor example_input(std::int64_t batch, std::uint64_t) const override {
    return at::ones({batch, 4});
  }
  at::Tensor example_target(std::int64_t batch, std::uint64_t) const override {
    return at::zeros({batch}, at::kLong);
  }

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
