#include "pareprop/optim/adamw.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <torch/optim/adamw.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "tests/io/temporary_folder.h"
#include "tests/optim/random_parameters.h"

namespace pareprop::optim {
namespace {

using io::testing::message_of;
using testing::copies_of;
using testing::expect_equal;
using testing::random_gradients;
using testing::random_parameters;

TEST(AdamW, StepsAsTorchDoes) {
  const auto ours = random_parameters(1), theirs = random_parameters(1);
  AdamW adamw(ours, {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const bool decay : {false, true}) {
    std::vector<at::Tensor> members;
    for (const auto& [name, parameter] : theirs) {
      if (decays(name, parameter) == decay) members.push_back(parameter);
    }
    auto options = std::make_unique<torch::optim::AdamWOptions>(0.01);
    options->betas({0.8, 0.95}).eps(1e-6).weight_decay(decay ? 0.3 : 0.0);
    groups.emplace_back(members, std::move(options));
  }
  torch::optim::AdamW torch_adamw(groups);
  for (std::uint64_t step = 0; step < 5; ++step) {
    random_gradients(ours, step);
    random_gradients(theirs, step);
    for (const auto& [name, parameter] : theirs) parameter.mutable_grad().mul_(0.25);
    adamw.step(0.01, 0.25);
    torch_adamw.step();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(ours[i].second.allclose(theirs[i].second, 1e-5, 1e-6)) << ours[i].first;
      EXPECT_TRUE(ours[i].second.grad().equal(theirs[i].second.grad()));
    }
  }
}

TEST(AdamW, ScaledRatesAreThoseOfTorchsGroups) {
  const std::vector<double> factors{0.125, 0.5, 0.5, 1.0};
  const auto ours = random_parameters(1), theirs = random_parameters(1);
  AdamW adamw(ours, {.weight_decay = 0.3});
  adamw.scale_rates(factors);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const auto& [name, parameter] = theirs[i];
    auto options = std::make_unique<torch::optim::AdamWOptions>(0.01 * factors[i]);
    options->weight_decay(decays(name, parameter) ? 0.3 : 0.0);
    groups.emplace_back(std::vector<at::Tensor>{parameter}, std::move(options));
  }
  torch::optim::AdamW torch_adamw(groups);
  for (std::uint64_t step = 0; step < 5; ++step) {
    random_gradients(ours, step);
    random_gradients(theirs, step);
    adamw.step(0.01);
    torch_adamw.step();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(ours[i].second.allclose(theirs[i].second, 1e-5, 1e-6)) << ours[i].first;
    }
  }
}

TEST(AdamW, BiasesNormsAndPositionsDoNotDecay) {
  const auto decaying = [](const std::string& model) {
    std::vector<std::string> names;
    const auto made = models::make_model(model, {}, {.device = at::kMeta});
    for (const auto& item : made->named_parameters()) {
      if (decays(item.key(), item.value())) names.push_back(item.key());
    }
    return names;
  };
  for (const char* model : {"vit_tiny", "swin_tiny", "mvit_tiny", "roberta_base"}) {
    const auto names = decaying(model);
    EXPECT_FALSE(names.empty());
    for (const std::string& name : names) {
      const bool matrix =
          name.ends_with("weight") || name == "embeddings.word" || name == "embeddings.type";
      EXPECT_TRUE(matrix && name.find("norm") == std::string::npos) << model << ": " << name;
    }
  }
}

TEST(AdamW, AllWeightsDecayWhereThatIsAskedFor) {
  for (const StateKind state : {StateKind::fp32, StateKind::bf16}) {
    const auto parameters = random_parameters(1);
    const auto before = copies_of(parameters);
    AdamW adamw(parameters, {.weight_decay = 0.5, .decay_all = true, .state = state});
    for (const auto& [name, parameter] : parameters) {
      parameter.mutable_grad() = at::zeros_like(parameter);
    }
    adamw.step(0.1);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(parameters[i].second.allclose(before[i].second.mul(0.95), 1e-5, 1e-6))
          << parameters[i].first;
    }
  }
}

TEST(AdamW, BitsDoNotDependOnThreads) {
  io::NamedTensors first;
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    const auto parameters = random_parameters(2);
    AdamW adamw(parameters);
    for (std::uint64_t step = 0; step < 3; ++step) {
      random_gradients(parameters, step);
      adamw.step(0.01, 0.3);
    }
    if (first.empty()) first = parameters;
    expect_equal(parameters, first);
  }
  omp_set_num_threads(before);
}

TEST(AdamW, ContinuesFromASavedStateWithTheSameBits) {
  const io::testing::TemporaryFolder folder;
  const auto one = random_parameters(3);
  AdamW through(one);
  const auto run = [](AdamW& adamw, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t step = begin; step < end; ++step) {
      random_gradients(adamw.parameters(), step);
      adamw.step(0.01);
    }
  };
  run(through, 0, 3);
  io::write_safetensors(folder / "state", through.state());
  const auto two = copies_of(one);
  AdamW resumed(two);
  resumed.load_state(io::SafetensorsFile(folder / "state"));
  run(through, 3, 6);
  run(resumed, 3, 6);
  expect_equal(one, two);
  expect_equal(through.state(), resumed.state());
}

TEST(AdamW, AParameterWithoutGradientStays) {
  const auto parameters = random_parameters(4);
  AdamW adamw(parameters);
  random_gradients(parameters, 0);
  parameters[1].second.mutable_grad().reset();
  adamw.step(0.1);
  EXPECT_TRUE(parameters[1].second.equal(random_parameters(4)[1].second));
  EXPECT_FALSE(parameters[3].second.equal(random_parameters(4)[3].second));
}

TEST(AdamW, StateIsTheOptimizersMemory) {
  memory::install_caching_allocator();
  const auto parameters = random_parameters(5);
  std::int64_t bytes = 0;
  for (const auto& [name, parameter] : parameters) {
    bytes += static_cast<std::int64_t>(2 * parameter.nbytes() + sizeof(float));
  }
  const auto before = memory::usage().live_of(memory::Tag::optimizer);
  const AdamW adamw(parameters);
  EXPECT_EQ(memory::usage().live_of(memory::Tag::optimizer) - before, bytes);
}

TEST(AdamW, RefusesWhatItCannotTrain) {
  EXPECT_THROW(AdamW({}, {.beta1 = 1.0}), std::invalid_argument);
  EXPECT_THROW(AdamW({}, {.beta2 = -0.1}), std::invalid_argument);
  EXPECT_THROW(AdamW({}, {.eps = 0.0}), std::invalid_argument);
  EXPECT_THROW(AdamW({}, {.weight_decay = -1.0}), std::invalid_argument);
  const auto message = message_of<std::invalid_argument>([] {
    AdamW({{"half", at::randn({2}).to(at::kHalf)}});
  });
  EXPECT_NE(message.find("half is Half, expected Float, BFloat16 or Double"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace pareprop::optim
