#include "pareprop/train/ema.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/io/temporary_folder.h"
#include "tests/optim/random_parameters.h"

namespace pareprop::train {
namespace {

using optim::testing::random_parameters;

void give(const io::NamedTensors& parameters, double value) {
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) parameter.fill_(value);
}

double first_average(const Ema& ema) { return ema.state()[1].second.flatten()[0].item<double>(); }

TEST(Ema, FollowsTheWeights) {
  const auto parameters = random_parameters(1);
  give(parameters, 0.0);
  Ema ema(parameters, 0.9);
  double expected = 0.0;
  for (int n = 1; n <= 200; ++n) {
    give(parameters, std::sin(n));
    ema.update();
    const double decay = std::min(0.9, n / (n + 9.0));
    expected = decay * expected + (1.0 - decay) * std::sin(n);
    ASSERT_NEAR(first_average(ema), expected, 1e-5);
  }
}

TEST(Ema, IsSwappedInAndBackWithTheSameBits) {
  const auto parameters = random_parameters(2), before = random_parameters(2);
  Ema ema(parameters, 0.5);
  give(parameters, 3.0);
  {
    const AveragedWeights averaged(&ema);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(parameters[i].second.equal(before[i].second));
      EXPECT_TRUE(parameters[i].second.requires_grad() && parameters[i].second.is_leaf());
    }
  }
  for (const auto& [name, parameter] : parameters)
    EXPECT_TRUE(parameter.eq(3.0).all().item<bool>());
  EXPECT_TRUE(ema.state()[0].second.equal(before[0].second));
  const AveragedWeights none(nullptr);
}

TEST(Ema, ContinuesFromItsState) {
  const auto parameters = random_parameters(3);
  Ema through(parameters, 0.99);
  for (int i = 0; i < 4; ++i) through.update();
  give(parameters, 1.0);
  through.update();
  Ema resumed(parameters, 0.99);
  const io::testing::TemporaryFolder folder;
  io::write_safetensors(folder / "state", through.state());
  resumed.load_state(io::SafetensorsFile(folder / "state"));
  give(parameters, 2.0);
  through.update();
  resumed.update();
  for (std::size_t i = 0; i < through.state().size(); ++i) {
    EXPECT_TRUE(through.state()[i].second.equal(resumed.state()[i].second));
  }
}

TEST(Ema, RefusesADecayOutOfRange) {
  for (const double decay : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(Ema({}, decay), std::invalid_argument);
  }
}

}  // namespace
}  // namespace pareprop::train
