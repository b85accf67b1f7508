#include "pareprop/train/gradient_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "tests/optim/random_parameters.h"

namespace pareprop::train {
namespace {

GradientNorm gradient_norm(const io::NamedTensors& parameters) {
  return norm_of(parameters, squared_norms(parameters));
}

using optim::testing::random_gradients;
using optim::testing::random_parameters;

TEST(GradientNorm, IsThatOfAllGradientsAsOneVector) {
  const auto parameters = random_parameters(1);
  random_gradients(parameters, 1);
  std::vector<at::Tensor> all;
  for (const auto& [name, parameter] : parameters) {
    all.push_back(parameter.grad().to(at::kDouble).flatten());
  }
  const GradientNorm found = gradient_norm(parameters);
  EXPECT_NEAR(found.norm, at::cat(all).norm().item<double>(), 1e-10 * found.norm);
  EXPECT_EQ(found.first_not_finite, "");
}

TEST(GradientNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto parameters = random_parameters(2);
  random_gradients(parameters, 2);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const double one = gradient_norm(parameters).norm;
  for (const int threads : {2, 3, 5}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(gradient_norm(parameters).norm, one) << threads;
  }
  omp_set_num_threads(before);
}

TEST(GradientNorm, OfHugeGradientsDoesNotOverflow) {
  const io::NamedTensors one = {{"w", at::full({4}, 0.0F).requires_grad_(true)}};
  one[0].second.mutable_grad() = at::full({4}, 1e30F);
  EXPECT_NEAR(gradient_norm(one).norm / 2e30, 1.0, 1e-6);
  EXPECT_EQ(gradient_norm(one).first_not_finite, "");
}

TEST(GradientNorm, NamesTheParameterNearestTheLossThatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto parameters = random_parameters(3);
    random_gradients(parameters, 3);
    parameters[0].second.grad().flatten()[39].fill_(bad);
    EXPECT_EQ(gradient_norm(parameters).first_not_finite, "pos_embed");
    parameters[2].second.grad()[6].fill_(bad);
    const GradientNorm found = gradient_norm(parameters);
    EXPECT_EQ(found.first_not_finite, "fc1.bias");
    EXPECT_FALSE(std::isfinite(found.norm));
  }
}

TEST(FirstNotFinite, NamesTheFirstParameter) {
  const auto parameters = random_parameters(5);
  EXPECT_EQ(first_not_finite(parameters), "");
  at::NoGradGuard no_grad;
  parameters[2].second.flatten()[1].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(first_not_finite(parameters), parameters[2].first);
  parameters[1].second.flatten()[0].fill_(-std::numeric_limits<float>::infinity());
  EXPECT_EQ(first_not_finite(parameters), parameters[1].first);
}

TEST(GradientNorm, WithoutGradientsIsZero) {
  EXPECT_EQ(gradient_norm(random_parameters(4)).norm, 0.0);
}

TEST(ClipFactor, BringsTheNormDownToTheLimit) {
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace pareprop::train
