// Processes that train together on the simulated device, each on one of its own.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "pareprop/io/safetensors.h"
#include "tests/distributed/worker_process.h"

namespace pareprop::distributed {
namespace {

using io::testing::TemporaryFolder;
using testing::Worker;

TEST(DeviceRanks, HaveTheWeightsOfOneProcessOnTheCpu) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  Worker alone({"train", "60000", path, "vit_tiny"});
  EXPECT_EQ(alone.wait(), 0) << alone.errors();
  Worker together({"--nproc", "2", "train", "60000", path, "vit_tiny", "simulated"});
  ASSERT_EQ(together.wait(), 0) << together.errors();
  EXPECT_EQ(io::testing::content(folder / "0-of-2"), io::testing::content(folder / "1-of-2"));
  const io::SafetensorsFile one(folder / "0-of-1"), several(folder / "0-of-2");
  for (const std::string& name : one.names()) {
    EXPECT_TRUE(one.tensor(name).allclose(several.tensor(name), 1e-4, 1e-6)) << name;
  }
}

struct Logged {
  std::vector<double> losses, norms, evaluations;
};

Logged logged(const std::filesystem::path& run) {
  Logged all;
  std::ifstream lines(run / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("eval_loss")) {
      all.evaluations.push_back(json.at("eval_loss").get<double>());
    } else {
      all.losses.push_back(json.at("loss").get<double>());
      all.norms.push_back(json.at("gradient_norm").get<double>());
    }
  }
  return all;
}

// train() as a whole: two processes with half of each batch, accumulation, clipping, an average and
// evaluations.
TEST(DeviceRanks, TrainAsOneProcessWithTheWholeBatch) {
  const TemporaryFolder folder;
  const auto out = [&](const char* name) { return (folder / name).string(); };
  Worker alone({"run", "60000", out("alone"), "simulated", "8"});
  Worker on_cpu({"run", "60000", out("cpu"), "cpu", "8"});
  EXPECT_EQ(alone.wait(), 0) << alone.errors();
  EXPECT_EQ(on_cpu.wait(), 0) << on_cpu.errors();
  Worker together({"--nproc", "2", "run", "60000", out("together"), "simulated", "4"});
  ASSERT_EQ(together.wait(), 0) << together.errors();

  const Logged expected = logged(out("cpu"));
  ASSERT_EQ(expected.losses.size(), 4U);
  ASSERT_EQ(expected.evaluations.size(), 1U);
  for (const char* name : {"alone", "together"}) {
    SCOPED_TRACE(name);
    const Logged got = logged(out(name));
    ASSERT_EQ(got.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i] / expected.losses[i], 1.0, 1e-4) << i;
      EXPECT_NEAR(got.norms[i] / expected.norms[i], 1.0, 1e-3) << i;
    }
    ASSERT_EQ(got.evaluations.size(), 1U);
    EXPECT_NEAR(got.evaluations[0] / expected.evaluations[0], 1.0, 1e-4);
  }
}

}  // namespace
}  // namespace pareprop::distributed
