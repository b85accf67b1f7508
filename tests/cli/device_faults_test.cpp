// What the program says of a device that is not there, lacks something, or is lost on the way: one
// line, an exit code, and a run that goes on from its last checkpoint.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"
#include "tests/io/temporary_folder.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::cli {
namespace {

using pareprop::testing::Fault;
using pareprop::testing::FaultScope;
using pareprop::testing::SimulatedDevice;
using testing::ProgramRun;
using testing::run_program;
using testing::ScratchFolder;

// The one line that says why the program failed; what `train` says on its way is not part of it.
std::string complaint(const ProgramRun& run) {
  EXPECT_NE(run.code, 0);
  std::string found;
  std::istringstream lines(run.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("train: ", 0) == 0) continue;
    EXPECT_EQ(found, "") << run.err;
    EXPECT_EQ(line.rfind("pareprop: ", 0), 0U) << run.err;
    found = line;
  }
  EXPECT_EQ(found.find("frame #"), std::string::npos) << found;
  return found;
}

void expect_says(const ProgramRun& run, const std::vector<std::string>& parts) {
  const std::string said = complaint(run);
  for (const std::string& part : parts) {
    EXPECT_NE(said.find(part), std::string::npos) << "'" << part << "' in: " << said;
  }
}

std::vector<std::string> verify(std::vector<std::string> more) {
  more.insert(more.begin(), {"verify", "--model", "vit_digits", "--depth", "2", "--batch", "1"});
  return more;
}

std::vector<std::string> train(const std::string& out, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"train",
                             "--data",
                             "digits",
                             "--model",
                             "vit_digits",
                             "--depth",
                             "2",
                             "--batch",
                             "4",
                             "--steps",
                             "4",
                             "--mode",
                             "pareprop",
                             "--exact",
                             "--ema",
                             "0.9",
                             "--eval-every",
                             "2",
                             "--save-every",
                             "1",
                             "--device",
                             "simulated",
                             "--out",
                             out});
  return more;
}

TEST(DeviceFaults, NoDeviceIsSaidByEveryCommandThatComputes) {
  const ScratchFolder folder;
  const FaultScope none({.no_device = true});
  for (const char* command : {"verify", "bench", "trace", "demo", "doctor"}) {
    SCOPED_TRACE(command);
    expect_says(run_program({command, "--device", "simulated"}),
                {"--device: no simulated device was found on this machine", "use cpu"});
  }
  expect_says(run_program(train(folder / "run")), {"--device: no simulated device was found"});
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(DeviceFaults, WhyTorchFindsNoDeviceIsQuoted) {
  const FaultScope old({.no_device = true,
                        .why_no_device = "initialization: The driver on your system is too old "
                                         "(found version 11040).\nPlease update your driver"});
  expect_says(run_program(verify({"--device", "simulated"})),
              {"no simulated device was found", "torch says: ", "driver on your system is too old",
               "use cpu"});
}

TEST(DeviceFaults, ATorchOrAMachineWithoutCudaIsSaid) {
  const ProgramRun run = run_program(verify({"--device", "cuda:99"}));
  expect_says(run, {"--device: ", "cuda"});
}

TEST(DeviceFaults, BfloatThatTheDeviceLacksIsSaid) {
  const ScratchFolder folder;
  const FaultScope lacks({.no_bfloat16 = true});
  const std::vector<std::string> parts{"cannot compute in bf16", "use --precision fp32"};
  expect_says(run_program(verify({"--device", "simulated", "--precision", "bf16"})), parts);
  expect_says(run_program(train(folder / "run", {"--precision", "bf16"})), parts);
}

TEST(DeviceFaults, AnOperatorWithoutAKernelIsNamed) {
  const FaultScope lacks({.missing_operator = "aten::gelu.out"});
  expect_says(
      run_program(verify({"--device", "simulated"})),
      {"torch has no kernel of aten::gelu.out for this device (PrivateUse1)", "use --device cpu"});
}

std::int64_t launches_of(const std::vector<std::string>& arguments) {
  SimulatedDevice::reset_counts();
  EXPECT_EQ(run_program(arguments).code, 0);
  return SimulatedDevice::counts().launches;
}

// Between the plan and the first step, and where an evaluation needs other tensors than a step.
TEST(DeviceFaults, MemoryThatOthersTookIsSaidAndNothingIsLost) {
  const ScratchFolder folder;
  const std::int64_t launches = launches_of(train(folder / "whole"));
  constexpr int kPlaces = 6;
  int failed = 0;
  for (int place = 1; place < kPlaces; ++place) {
    const std::string out = folder / ("run-" + std::to_string(place));
    {
      SimulatedDevice::finish();
      SimulatedDevice::empty_cache();
      const FaultScope taken({.memory_taken_after = launches * place / kPlaces});
      const ProgramRun run = run_program(train(out));
      if (run.code == 0) continue;  // what the allocator had taken by then was enough
      ++failed;
      expect_says(run, {"memory"});
      if (!std::filesystem::exists(out + "/checkpoints")) continue;
      expect_says(run, {"out of memory: ", "smaller --batch, a smaller --budget, --mode reprop",
                        "the last checkpoint is that of step", "--resume auto"});
    }
    ASSERT_EQ(run_program(train(out, {"--resume", "auto"})).code, 0);
    EXPECT_EQ(io::testing::content(out + "/model.safetensors"),
              io::testing::content(folder / "whole/model.safetensors"));
  }
  EXPECT_GE(failed, 1);
}

// Wherever it happens: in the network's first weights, a pass, the optimizer, an evaluation, or
// while a file is written.
TEST(DeviceFaults, ALostDeviceLeavesTheLastCheckpoint) {
  const ScratchFolder folder;
  const std::int64_t launches = launches_of(train(folder / "whole"));
  constexpr int kPlaces = 8;
  int resumed = 0;
  for (int place = 0; place < kPlaces; ++place) {
    const std::int64_t after = launches * place / kPlaces + place;
    SCOPED_TRACE("after " + std::to_string(after) + " of " + std::to_string(launches));
    const std::string out = folder / ("run-" + std::to_string(place));
    {
      const FaultScope lost({.lost_after = after});
      expect_says(run_program(train(out)), {"the device failed: simulated error: unspecified"});
    }
    if (!std::filesystem::exists(out + "/checkpoints")) continue;
    ++resumed;
    ASSERT_EQ(run_program(train(out, {"--resume", "auto"})).code, 0);
    EXPECT_EQ(io::testing::content(out + "/model.safetensors"),
              io::testing::content(folder / "whole/model.safetensors"));
  }
  EXPECT_GT(resumed, kPlaces / 3);
}

}  // namespace
}  // namespace pareprop::cli
