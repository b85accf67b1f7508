// Processes that divide the optimizer's state, or that and the gradients, against those that divide
// nothing: the same bits, and a share of the memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "pareprop/io/safetensors.h"
#include "pareprop/models/registry.h"
#include "tests/distributed/worker_process.h"

namespace pareprop::distributed {
namespace {

namespace fs = std::filesystem;
using io::testing::content;
using io::testing::TemporaryFolder;
using testing::Worker;

using Fields = std::vector<std::pair<std::string, std::string>>;

class ShardedTraining : public ::testing::Test {
 protected:
  struct Run {
    std::string name;
    Fields fields;
  };

  // One run after another in the same processes, which take longer to start than a run. The exit
  // code; `said_` is what the processes wrote to standard error.
  int run(int processes, const std::vector<Run>& runs) {
    std::vector<std::string> arguments = {"--nproc", std::to_string(processes), "fields", "60000"};
    for (const Run& one : runs) {
      if (&one != &runs.front()) arguments.emplace_back("then");
      arguments.push_back(out(one.name));
      for (const auto& [key, value] : one.fields) {
        arguments.push_back(key);
        arguments.push_back(value);
      }
    }
    Worker worker(arguments);
    const int code = worker.wait(std::chrono::seconds(300));
    said_ = worker.errors();
    return code;
  }
  int run(const std::string& name, int processes, const Fields& fields) {
    return run(processes, {{name, fields}});
  }

  // Trains each case with each of the ways to divide, all but the first into the bits of the first.
  void expect_same_bits(int processes, const std::vector<Fields>& cases) {
    const std::vector<std::string> ways = {"none", "state", "gradients"};
    const auto name_of = [&](std::size_t number, const std::string& shard) {
      return shard + std::to_string(number) + " of " + std::to_string(processes);
    };
    std::vector<Run> runs;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (const std::string& shard : ways) {
        runs.push_back({name_of(i, shard), cases[i]});
        runs.back().fields.emplace_back("shard", shard);
      }
    }
    ASSERT_EQ(run(processes, runs), 0) << said_;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      std::string what = std::to_string(processes) + " processes";
      for (const auto& [key, value] : cases[i]) what += " " + key + " " + value;
      SCOPED_TRACE(what);
      const std::string weights = weights_of(name_of(i, "none")),
                        metrics = losses(name_of(i, "none"));
      ASSERT_FALSE(weights.empty());
      ASSERT_FALSE(metrics.empty());
      for (const std::string& shard : ways) {
        EXPECT_TRUE(weights_of(name_of(i, shard)) == weights) << shard;
        EXPECT_EQ(losses(name_of(i, shard)), metrics) << shard;
      }
    }
  }

  std::string weights_of(const std::string& name) const {
    return content(folder_ / name / "model.safetensors");
  }
  // Losses and norms of all steps.
  std::string losses(const std::string& name) const {
    std::ifstream lines(folder_ / name / "losses");
    return {std::istreambuf_iterator<char>(lines), {}};
  }
  // Of tensors with the tag for optimizers, in the process of this rank.
  std::int64_t optimizer_bytes(const std::string& name, int rank) const {
    std::int64_t bytes = -1;
    std::ifstream(folder_ / name / ("optimizer_bytes-" + std::to_string(rank))) >> bytes;
    return bytes;
  }
  // The most that gradients took in the process of this rank.
  std::int64_t gradient_bytes(const std::string& name, int rank) const {
    std::int64_t bytes = -1;
    std::ifstream(folder_ / name / ("gradient_bytes-" + std::to_string(rank))) >> bytes;
    return bytes;
  }
  std::string out(const std::string& name) const { return (folder_ / name).string(); }

  TemporaryFolder folder_;
  std::string said_;
};

TEST_F(ShardedTraining, GivesTheSameBitsWithEveryOptimizer) {
  std::vector<Fields> cases;
  for (const auto& [optimizer, state] : Fields{{"adamw", "fp32"},
                                               {"adamw", "bf16"},
                                               {"adamw", "8bit"},
                                               {"sgd", "fp32"},
                                               {"sgd", "8bit"},
                                               {"adafactor", "fp32"}}) {
    cases.push_back({{"optimizer", optimizer},
                     {"optimizer_state", state},
                     {"width", "64"},
                     {"learning_rate", optimizer == "sgd" ? "0.1" : "0.003"}});
  }
  for (const int processes : {2, 3}) expect_same_bits(processes, cases);
}

TEST_F(ShardedTraining, GivesTheSameBitsWithClippingAccumulationAveragesAndUpdatesInside) {
  expect_same_bits(3, {{{"clip", "0.05"}, {"accumulate", "3"}, {"ema", "0.9"}, {"dropout", "0.1"}},
                       {{"clip", "0.05"}, {"update", "inside"}, {"ema", "0.9"}},
                       {{"head_steps", "2"}, {"clip", "0.05"}, {"ema", "0.9"}}});
  expect_same_bits(2, {{{"clip", "0"}, {"update", "inside"}},
                       {{"plain", "true"}, {"exact", "false"}, {"mode", "stored"}},
                       {{"freeze", "patch_embed.*,blocks.0.*"}, {"layer_decay", "0.7"}},
                       {{"head_steps", "2"}, {"update", "inside"}, {"layer_decay", "0.7"}}});
}

// On the simulated device, which finds every race of streams.
TEST_F(ShardedTraining, GivesTheSameBitsOnAnAccelerator) {
  expect_same_bits(2, {{{"device", "auto"}, {"accumulate", "2"}, {"clip", "0.05"}, {"steps", "3"}},
                       {{"device", "auto"}, {"update", "inside"}, {"steps", "3"}},
                       {{"device", "auto"},
                        {"update", "inside"},
                        {"clip", "0.05"},
                        {"steps", "3"},
                        {"trace", "2"}}});
}

TEST_F(ShardedTraining, GivesTheSameBitsInEveryFamily) {
  expect_same_bits(3, {{{"model", "swin_cifar"}, {"width", "24"}},
                       {{"model", "mvit_cifar"}, {"width", "16"}},
                       {{"model", "roberta_base"},
                        {"data", "persuasion"},
                        {"width", "24"},
                        {"vocabulary", "300"},
                        {"seq_len", "16"}}});
}

TEST_F(ShardedTraining, KeepsAShareOfTheOptimizersState) {
  const Fields states = {{"adamw", "fp32"}, {"adamw", "bf16"}, {"adamw", "8bit"}, {"sgd", "fp32"}};
  for (const int processes : {1, 2, 3}) {
    std::vector<Run> runs;
    for (const auto& [optimizer, state] : states) {
      for (const char* shard : {"state", "gradients"}) {
        runs.push_back({optimizer + state + shard + std::to_string(processes),
                        {{"optimizer", optimizer},
                         {"optimizer_state", state},
                         {"shard", shard},
                         {"width", "64"},
                         {"depth", "6"},
                         {"steps", "1"},
                         {"batch", "2"}}});
      }
    }
    ASSERT_EQ(run(processes, runs), 0) << said_;
  }
  for (const auto& [optimizer, state] : states) {
    for (const char* shard : {"state", "gradients"}) {
      const std::string name = optimizer + state + shard;
      const auto whole = static_cast<double>(optimizer_bytes(name + "1", 0));
      ASSERT_GT(whole, 5e5);
      for (const int processes : {2, 3}) {
        double sum = 0.0;
        for (int rank = 0; rank < processes; ++rank) {
          const auto bytes =
              static_cast<double>(optimizer_bytes(name + std::to_string(processes), rank));
          // Shares are equal in weights; of small ones, eight bits keep more bytes for a weight.
          EXPECT_NEAR(bytes / whole * processes, 1.0, state == "8bit" ? 0.08 : 0.02)
              << name << " rank " << rank << " of " << processes;
          sum += bytes;
        }
        EXPECT_NEAR(sum, whole, 1e-3 * whole);
      }
    }
  }
}

TEST_F(ShardedTraining, GoesOnWithAnotherNumberOfProcessesAndAnotherDivision) {
  // A step has 12 samples each time.
  const std::vector<std::tuple<int, std::string, std::string>> parts = {
      {2, "6", "4"}, {1, "12", "8"}, {3, "4", "12"}};
  const std::vector<std::vector<std::string>> ways = {{"none", "none", "none"},
                                                      {"state", "state", "state"},
                                                      {"gradients", "none", "state"},
                                                      {"none", "gradients", "gradients"}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [processes, batch, steps] = parts[i];
    std::vector<Run> runs;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      runs.push_back({"changed" + std::to_string(way),
                      {{"batch", batch},
                       {"steps", steps},
                       {"decay", "constant"},
                       {"warmup", "0"},
                       {"optimizer_state", "8bit"},
                       {"shard", ways[way][i]},
                       {"resume", i == 0 ? "" : "auto"}}});
    }
    ASSERT_EQ(run(processes, runs), 0) << said_;
  }
  const std::string weights = weights_of("changed0");
  ASSERT_FALSE(weights.empty());
  for (const char* name : {"changed1", "changed2", "changed3"}) {
    EXPECT_TRUE(weights_of(name) == weights) << name;
  }
  EXPECT_TRUE(
      fs::exists(folder_ / "changed1/checkpoints/step-00000012/optimizer-3-of-3.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "changed1/checkpoints/step-00000008/optimizer.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "changed0/checkpoints/step-00000012/optimizer.safetensors"));
}

TEST_F(ShardedTraining, UpdatesInsideGiveTheBitsOfUpdatesAfterInEveryFamily) {
  const Fields common = {{"clip", "0"},      {"steps", "50"},      {"initial_std", "0.1"},
                         {"dropout", "0.1"}, {"drop_path", "0.1"}, {"batch", "2"}};
  const std::vector<Fields> families = {{{"model", "vit_cifar"}, {"width", "16"}, {"depth", "2"}},
                                        {{"model", "swin_cifar"}, {"width", "24"}, {"depth", "1"}},
                                        {{"model", "mvit_cifar"}, {"width", "16"}, {"depth", "2"}},
                                        {{"model", "roberta_base"},
                                         {"width", "24"},
                                         {"depth", "2"},
                                         {"data", "persuasion"},
                                         {"vocabulary", "300"},
                                         {"seq_len", "16"}}};
  std::vector<Run> runs;
  for (const Fields& family : families) {
    for (const char* mode : {"reprop", "pareprop"}) {
      for (const char* update : {"after", "inside"}) {
        Run one{family.front().second + " " + mode + " " + update, common};
        one.fields.insert(one.fields.end(), family.begin(), family.end());
        one.fields.insert(one.fields.end(), {{"mode", mode}, {"update", update}});
        if (mode == std::string("reprop")) one.fields.emplace_back("steps", "8");
        runs.push_back(std::move(one));
      }
    }
  }
  ASSERT_EQ(run(2, runs), 0) << said_;
  for (std::size_t i = 0; i < runs.size(); i += 2) {
    ASSERT_FALSE(weights_of(runs[i].name).empty());
    EXPECT_TRUE(weights_of(runs[i + 1].name) == weights_of(runs[i].name)) << runs[i].name;
    EXPECT_EQ(losses(runs[i + 1].name), losses(runs[i].name)) << runs[i].name;
  }
}

TEST_F(ShardedTraining, UpdatesInsideHoldTheGradientsOfTwoBlocksAndOneTensor) {
  std::vector<Run> runs;
  std::vector<std::int64_t> most;
  for (const auto& [model, width, depth] : std::vector<std::tuple<std::string, int, int>>{
           {"vit_cifar", 64, 12}, {"swin_cifar", 48, 2}, {"mvit_cifar", 32, 2}}) {
    std::int64_t block = 0, tensor = 0;
    const auto network = models::make_model(
        model, {.depths = {depth}, .width = width, .classes = 10}, {.device = at::kMeta});
    for (const Stack& stack : network->stacks()) {
      std::int64_t bytes = 0;
      for (const at::Tensor& weight : stack->parameters()) {
        bytes += static_cast<std::int64_t>(weight.nbytes());
      }
      block = std::max(block, bytes / std::max(1, stack->depth()));
    }
    for (const at::Tensor& weight : network->weights()) {
      tensor = std::max(tensor, static_cast<std::int64_t>(weight.nbytes()));
    }
    for (const char* shard : {"none", "state"}) {
      runs.push_back({model + " " + shard,
                      {{"model", model},
                       {"width", std::to_string(width)},
                       {"depth", std::to_string(depth)},
                       {"mode", "reprop"},
                       {"update", "inside"},
                       {"clip", "0"},
                       {"steps", "2"},
                       {"shard", shard}}});
      most.push_back(2 * block + tensor);
    }
  }
  ASSERT_EQ(run(2, runs), 0) << said_;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const int rank : {0, 1}) {
      EXPECT_GT(gradient_bytes(runs[i].name, rank), most[i] / 4) << runs[i].name;
      EXPECT_LE(gradient_bytes(runs[i].name, rank), most[i]) << runs[i].name;
    }
  }
}

TEST_F(ShardedTraining, RefusesAnotherBatchThanTheProcessesCallFor) {
  ASSERT_EQ(run("run", 2, {{"batch", "6"}, {"steps", "2"}, {"shard", "state"}}), 0) << said_;
  const auto again = [&](int processes, const char* batch) {
    const int code = run("run", processes, {{"batch", batch}, {"steps", "4"}, {"resume", "auto"}});
    EXPECT_NE(code, 0);
    return said_;
  };
  EXPECT_NE(again(3, "5").find("was trained with --batch 6 by 2 processes, but now it is --batch 5 "
                               "with 3: use --batch 4 or start another run"),
            std::string::npos)
      << said_;
  EXPECT_NE(again(2, "3").find("use --batch 6 or"), std::string::npos) << said_;
  // The same batch size goes too: a step has more samples then.
  EXPECT_EQ(run("run", 3, {{"batch", "6"}, {"steps", "4"}, {"resume", "auto"}}), 0) << said_;
}

TEST_F(ShardedTraining, RefusesADamagedOrMissingShard) {
  const Fields fields = {{"steps", "2"}, {"shard", "state"}};
  ASSERT_EQ(run("run", 2, fields), 0) << said_;
  const fs::path checkpoint = folder_ / "run/checkpoints/step-00000002";
  const fs::path shard = checkpoint / "optimizer-2-of-2.safetensors";
  const std::string whole = content(shard);
  const auto again = [&] {
    EXPECT_NE(run("run", 2, {{"steps", "4"}, {"shard", "state"}, {"resume", checkpoint.string()}}),
              0);
    return said_;
  };
  fs::remove(shard);
  EXPECT_NE(again().find("optimizer-2-of-2.safetensors is missing"), std::string::npos) << said_;
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(shard) << damaged;
  EXPECT_NE(again().find("optimizer-2-of-2.safetensors is damaged"), std::string::npos) << said_;
  std::ofstream(shard) << whole.substr(0, whole.size() / 2);
  EXPECT_NE(again().find("optimizer-2-of-2.safetensors has"), std::string::npos) << said_;
  std::ofstream(shard) << whole;
  EXPECT_EQ(run("run", 2, {{"steps", "4"}, {"shard", "state"}, {"resume", checkpoint.string()}}), 0)
      << said_;
}

TEST_F(ShardedTraining, RefusesAStepThatIsNotFiniteInAllProcessesAndSavesBeforeIt) {
  for (const char* shard : {"state", "gradients"}) {
    EXPECT_NE(
        run(shard, 2,
            {{"shard", shard}, {"learning_rate", "1e30"}, {"warmup", "0"}, {"exact", "false"}}),
        0);
    EXPECT_NE(said_.find("is not finite"), std::string::npos) << said_;
    EXPECT_EQ(said_.find("cannot continue"), std::string::npos) << said_;
    ASSERT_TRUE(fs::exists(folder_ / shard / "checkpoints")) << said_;
    for (const auto& entry : fs::directory_iterator(folder_ / shard / "checkpoints")) {
      EXPECT_TRUE(fs::exists(entry.path() / "optimizer-2-of-2.safetensors")) << entry.path();
    }
  }
}

TEST_F(ShardedTraining, ADiskThatIsFullInOneProcessEndsAll) {
  const Fields fields = {{"steps", "2"}, {"shard", "state"}, {"width", "64"}};
  ASSERT_EQ(run("run", 2, fields), 0) << said_;
  Fields more = {{"steps", "4"},
                 {"shard", "state"},
                 {"width", "64"},
                 {"resume", "auto"},
                 {"file limit of rank 1", "100000"}};
  EXPECT_NE(run("run", 2, more), 0);
  EXPECT_NE(said_.find("because rank 1 could not write its part"), std::string::npos) << said_;
  EXPECT_NE(said_.find("File too large"), std::string::npos) << said_;
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoints/step-00000002/state.json"));
  EXPECT_FALSE(fs::exists(folder_ / "run/checkpoints/step-00000004"));
  EXPECT_FALSE(fs::exists(folder_ / "run/checkpoints/step-00000004.partial"));
  more.pop_back();
  EXPECT_EQ(run("run", 2, more), 0) << said_;
}

}  // namespace
}  // namespace pareprop::distributed
