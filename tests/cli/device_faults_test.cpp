// What the program says of a device that is not there, lacks something, or is lost on the way: one
// line, an exit code, and a run that goes on from its last checkpoint.

#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "pareprop/device/choose_device.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"
#include "tests/data/images/image_files.h"
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

// Batches that make an evaluation short.
std::vector<std::string> train(const std::string& out, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"train",
                             "--data",
                             "digits",
                             "--model",
                             "vit_digits",
                             "--depth",
                             "2",
                             "--batch",
                             "16",
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
  expect_says(run_program({"plan", "--device", "simulated"}),
              {"--budget: expected a number of bytes", "this machine has no simulated"});
}

TEST(DeviceFaults, ARunOfADeviceThatIsGoneIsUsedOnTheCpu) {
  const ScratchFolder folder;
  const std::string out = folder / "run", image = folder / "digit.png";
  ASSERT_EQ(run_program(train(out)).code, 0);
  io::testing::put(image, data::testing::png_bytes(data::testing::slope(8, 8, 1)));
  const FaultScope none({.no_device = true});
  const std::vector<std::vector<std::string>> commands{{"eval", "--run", out},
                                                       {"predict", "--run", out, image}};
  for (std::vector<std::string> command : commands) {
    SCOPED_TRACE(command.front());
    EXPECT_EQ(run_program(command).code, 0);  // --device auto
    command.insert(command.end(), {"--device", "simulated"});
    expect_says(run_program(command), {"--device: no simulated device was found", "use cpu"});
  }
  // The run was told to be on the device, and goes on where it is told to.
  expect_says(run_program(train(out, {"--resume", "auto"})),
              {"--device: no simulated device was found"});
  auto more = train(out, {"--resume", "auto", "--steps", "5"});
  *(std::find(more.begin(), more.end(), "--device") + 1) = "cpu";
  EXPECT_EQ(run_program(more).code, 0);
}

TEST(DeviceFaults, ANumberThatIsTooHighIsSaidByEveryCommandThatComputes) {
  const ScratchFolder folder;
  const std::vector<std::string> parts{"--device: this machine has 2 of them, got 'simulated:2'",
                                       "expected simulated:0 to simulated:1"};
  for (const char* command : {"verify", "bench", "trace", "demo", "doctor"}) {
    SCOPED_TRACE(command);
    expect_says(run_program({command, "--device", "simulated:2"}), parts);
  }
  auto arguments = train(folder / "run");
  *std::find(arguments.begin(), arguments.end(), "simulated") = "simulated:2";
  expect_says(run_program(arguments), parts);
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
  const bool built = c10::impl::hasDeviceGuardImpl(c10::kCUDA);
  const ProgramRun run = run_program(verify({"--device", "cuda:99"}));
  if (built && is_present(c10::kCUDA)) {
    return expect_says(run, {"--device: this machine has ", "got 'cuda:99'", "expected cuda:0"});
  }
  expect_says(run, built ? std::vector<std::string>{"--device: no cuda device was found", "use cpu"}
                         : std::vector<std::string>{"--device: this torch was built without cuda",
                                                    "build with TORCH=cuda", "or use cpu"});
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

// Also after a plan that fitted, and in the first step.
TEST(DeviceFaults, MemoryThatOthersTookBeforeThereIsACheckpointIsSaid) {
  const ScratchFolder folder;
  const std::vector<std::string> parts{"out of memory: ", "0 bytes are free",
                                       "stop other programs that use this memory",
                                       "smaller --batch, a smaller --budget, --mode reprop"};
  const std::vector<std::string> planned{"--budget", "1GiB", "--mode", "auto"};
  const auto after = [&](std::int64_t launches) {
    SimulatedDevice::finish();
    SimulatedDevice::empty_cache();
    return FaultScope({.memory_taken_after = launches});
  };
  int in_a_step = 0;
  for (const std::int64_t launches : {0, 60, 150, 200, 250}) {
    SCOPED_TRACE("after " + std::to_string(launches) + " launches");
    const FaultScope taken = after(launches);
    const std::string out = folder / ("run-" + std::to_string(launches));
    const ProgramRun run = run_program(train(out, planned));
    expect_says(run, parts);
    in_a_step += run.err.find("after step 0: ") == std::string::npos ? 0 : 1;
    EXPECT_FALSE(std::filesystem::exists(out + "/checkpoints"));
  }
  EXPECT_GE(in_a_step, 1);
  // What a plan finds taken already does not fit.
  const FaultScope taken = after(0);
  at::zeros({1}, at::device(SimulatedDevice::device()));
  expect_says(run_program(train(folder / "none")),
              {"not enough memory (limited by the memory of simulated:0)", " does not fit in ",
               "the smallest budget for this batch is "});
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

// These optimizers step one parameter after the other, and take memory for each.
TEST(DeviceFaults, MemoryThatOthersTookWhileWeightsChangeLeavesTheLastCheckpoint) {
  const ScratchFolder folder;
  const std::vector<std::vector<std::string>> optimizers{
      {"--optimizer-state", "8bit"}, {"--optimizer", "sgd"}, {"--optimizer", "adafactor"}};
  int in_optimizer = 0;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    const std::string name = optimizers[i].back(), whole = folder / (name + "-whole");
    // The first step takes memory for the head only.
    std::vector<std::string> more{"--head-steps", "1", "--steps", "2", "--width", "128"};
    more.insert(more.end(), optimizers[i].begin(), optimizers[i].end());
    const std::int64_t launches = launches_of(train(whole, more));
    for (std::int64_t after = launches / 6;; after += launches / 30) {
      SCOPED_TRACE(name + ", after " + std::to_string(after) + " of " + std::to_string(launches));
      const std::string out = folder / (name + "-" + std::to_string(after));
      {
        SimulatedDevice::finish();
        SimulatedDevice::empty_cache();
        const FaultScope taken({.memory_taken_after = after});
        const ProgramRun run = run_program(train(out, more));
        if (run.err.find("of step 2") != std::string::npos) break;  // both are done
        expect_says(run, {"out of memory: ", "the last checkpoint is that of step 1", "--resume"});
        in_optimizer += run.err.find("changed some of the weights") == std::string::npos ? 0 : 1;
      }
      auto again = more;
      again.insert(again.end(), {"--resume", "auto"});
      ASSERT_EQ(run_program(train(out, again)).code, 0);
      EXPECT_TRUE(io::testing::content(out + "/model.safetensors") ==
                  io::testing::content(whole + "/model.safetensors"));
    }
  }
  EXPECT_GE(in_optimizer, 3);
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
      const ProgramRun run = run_program(train(out));
      expect_says(run, {"the device failed: simulated error: unspecified"});
      if (std::filesystem::exists(out + "/checkpoints")) {
        expect_says(run, {"the last checkpoint is that of step", "--resume auto goes on from it"});
      }
    }
    if (!std::filesystem::exists(out + "/checkpoints")) continue;
    ++resumed;
    SimulatedDevice::finish();  // it was reset
    const ProgramRun again = run_program(train(out, {"--resume", "auto"}));
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(io::testing::content(out + "/model.safetensors"),
              io::testing::content(folder / "whole/model.safetensors"));
  }
  EXPECT_GT(resumed, kPlaces / 3);
}

}  // namespace
}  // namespace pareprop::cli
