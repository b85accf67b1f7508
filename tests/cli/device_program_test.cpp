// The program on an accelerator: the simulated device, where any race between streams is an error.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pareprop/graph/policy.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"
#include "tests/io/temporary_folder.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::cli {
namespace {

using pareprop::testing::SimulatedDevice;
using testing::ProgramRun;
using testing::run_program;
using testing::ScratchFolder;

std::vector<std::string> small_train(const std::string& out, const std::string& device) {
  return {"train",   "--data",   "digits",  "--model", "vit_digits",   "--depth",  "3",
          "--steps", "4",        "--batch", "4",       "--mode",       "pareprop", "--exact",
          "--out",   out,        "--ema",   "0.9",     "--accumulate", "2",        "--eval-every",
          "4",       "--device", device};
}

std::string without_backtrace(const ProgramRun& run) { return run.out + run.err; }

TEST(DeviceProgram, AutoTakesTheAccelerator) {
  const ProgramRun run = run_program(
      {"verify", "--model", "vit_digits", "--depth", "2", "--batch", "1", "--json", "-"});
  ASSERT_EQ(run.code, 0) << without_backtrace(run);
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("device").get<std::string>(), "simulated:0");
  EXPECT_TRUE(json.at("ok").get<bool>());
}

TEST(DeviceProgram, ADeviceThatIsNotThereIsNamedInOneLine) {
  const ProgramRun run = run_program({"verify", "--device", "simulated:7"});
  EXPECT_NE(run.code, 0);
  EXPECT_NE(run.err.find("expected simulated:0 to simulated:1"), std::string::npos) << run.err;
  EXPECT_EQ(testing::lines(run.err), 1);
}

TEST(DeviceProgram, TrainsResumesEvaluatesAndPredicts) {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  const ProgramRun whole = run_program(small_train(out, "simulated:1"));
  ASSERT_EQ(whole.code, 0) << without_backtrace(whole);

  auto more = small_train(out, "simulated");
  more[8] = "6";
  more.insert(more.end(), {"--resume", "auto"});
  const ProgramRun resumed = run_program(more);
  ASSERT_EQ(resumed.code, 0) << without_backtrace(resumed);

  const ProgramRun eval =
      run_program({"eval", "--run", out, "--device", "simulated", "--json", "-"});
  ASSERT_EQ(eval.code, 0) << without_backtrace(eval);
  const ProgramRun on_cpu = run_program({"eval", "--run", out, "--device", "cpu", "--json", "-"});
  ASSERT_EQ(on_cpu.code, 0) << without_backtrace(on_cpu);
  EXPECT_NEAR(nlohmann::json::parse(eval.out).at("loss").get<double>(),
              nlohmann::json::parse(on_cpu.out).at("loss").get<double>(), 1e-4);
}

TEST(DeviceProgram, AStepReadsFromTheDeviceOnce) {
  const ScratchFolder folder;
  const auto reads = [&](const std::string& steps) {
    auto arguments = small_train(folder / ("run-" + steps), "simulated");
    arguments[8] = steps;
    arguments.insert(arguments.end(), {"--eval-every", "100", "--save-every", "0"});
    SimulatedDevice::reset_counts();
    const ProgramRun run = run_program(arguments);
    EXPECT_EQ(run.code, 0) << without_backtrace(run);
    return SimulatedDevice::counts().host_reads;
  };
  // What is read besides steps (evaluation, weights) is the same in both.
  EXPECT_EQ(reads("9") - reads("5"), 4);
}

TEST(DeviceProgram, TracesBenchesAndPlans) {
  const ScratchFolder folder;
  const std::vector<std::string> network = {"--model", "vit_digits", "--depth",
                                            "3",       "--batch",    "2"};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), network.begin(), network.end());
    return command;
  };
  const ProgramRun trace = run_program(
      with({"trace", "--device", "simulated", "--steps", "1", "--out", folder / "t.json"}));
  EXPECT_EQ(trace.code, 0) << without_backtrace(trace);
  const ProgramRun bench =
      run_program(with({"bench", "--device", "simulated", "--rounds", "1", "--steps", "1"}));
  EXPECT_EQ(bench.code, 0) << without_backtrace(bench);
  EXPECT_NE(bench.out.find("simulated:0"), std::string::npos);
  const ProgramRun plan = run_program(with({"plan", "--device", "simulated", "--budget", "1GiB"}));
  EXPECT_EQ(plan.code, 0) << without_backtrace(plan);
}

TEST(DeviceProgram, PlansForADeviceThatIsNotHere) {
  const ProgramRun run = run_program(
      {"plan", "--model", "vit_small", "--batch", "8", "--device", "cuda", "--budget", "80GiB"});
  EXPECT_EQ(run.code, 0) << without_backtrace(run);
  EXPECT_NE(run.out.find("This machine has no cuda"), std::string::npos) << run.out;

  const ProgramRun told = run_program({"plan", "--model", "vit_small", "--batch", "8", "--device",
                                       "cuda", "--budget", "80GiB", "--json", "-"});
  const auto json = nlohmann::json::parse(told.out);
  EXPECT_TRUE(json.at("step_seconds").is_null());
  EXPECT_NE(json.at("times_note").get<std::string>().find("no cuda"), std::string::npos);
  EXPECT_GT(json.at("speed").get<double>(), 0.0);
  for (const char* rows : {"modes", "kinds"}) {
    EXPECT_FALSE(json.at(rows).empty());
    for (const auto& row : json.at(rows)) {
      EXPECT_TRUE(row.at("step_seconds").is_null()) << row;
      EXPECT_GT(row.at("speed").get<double>(), 0.0) << row;
    }
  }

  const ProgramRun without = run_program({"plan", "--device", "cuda"});
  EXPECT_NE(without.code, 0);
  EXPECT_NE(without.err.find("--budget"), std::string::npos) << without.err;
}

TEST(DeviceProgram, DoctorExaminesIt) {
  const ScratchFolder folder;
  const std::string file = folder / "doctor.json";
  const ProgramRun run = run_program({"doctor", "--device", "simulated:1", "--quick", "--model",
                                      "vit_digits", "--batch", "2", "--out", file});
  EXPECT_EQ(run.code, 0) << without_backtrace(run);
  EXPECT_NE(run.out.find("device: simulated:1"), std::string::npos) << run.out;
  const auto json = nlohmann::json::parse(io::testing::content(file));
  EXPECT_TRUE(json.at("healthy").get<bool>());
  EXPECT_EQ(json.at("device").get<std::string>(), "simulated:1");
  EXPECT_EQ(json.at("verified").size(), 16U);  // families, precisions, arithmetics
  for (const auto& one : json.at("verified")) {
    EXPECT_TRUE(one.at("holds").get<bool>()) << one;
    EXPECT_EQ(one.at("modes").size(), preset_modes().size());
  }
  ASSERT_EQ(json.at("raced").size(), 2 * preset_modes().size());
  for (const auto& one : json.at("raced")) {
    EXPECT_GT(one.at("samples_per_s").get<double>(), 0.0);
    EXPECT_GT(one.at("peak_bytes").get<std::int64_t>(), 0);
    EXPECT_GT(one.at("predicted_peak_bytes").get<std::int64_t>(), 0);
  }
  EXPECT_EQ(SimulatedDevice::memory(0).allocated, 0) << "the other device was left alone";
}

}  // namespace
}  // namespace pareprop::cli
