// The program on an accelerator: the simulated device, where any race between streams is an error.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/auto_plan.h"
#include "pareprop/device/choose_device.h"
#include "pareprop/graph/policy.h"
#include "pareprop/plan/free_budget.h"
#include "pareprop/sweep/verify.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"
#include "tests/data/images/image_files.h"
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

TEST(DeviceProgram, RanksTakeADeviceEachAndShareWhereThereAreTooFew) {
  for (const char* spec : {"auto", "simulated"}) {
    for (int rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(choose_device(spec, rank), SimulatedDevice::device(rank % 2)) << spec << rank;
    }
  }
  EXPECT_EQ(choose_device("simulated:1", 2), SimulatedDevice::device(1));

  // Who shares a device divides its memory.
  const c10::Device first = SimulatedDevice::device(0);
  EXPECT_EQ(processes_on(first, "auto", 2), 1);
  EXPECT_EQ(processes_on(first, "simulated", 5), 3);
  EXPECT_EQ(processes_on(SimulatedDevice::device(1), "simulated", 5), 2);
  EXPECT_EQ(processes_on(SimulatedDevice::device(1), "simulated:1", 5), 5);
  const auto alone = static_cast<double>(plan::free_budget(first));
  EXPECT_NEAR(static_cast<double>(plan::free_budget(first, 4)) / alone, 0.25, 1e-6);
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

// A batch whose plan for the device recovers a block, and for the CPU none.
constexpr int kMixed = 24;

// Gradients of a step as `verify` compares them: on the device, with a plan for `planned`.
VerifyRow row_of_a_mixture(c10::Device planned) {
  const c10::Device device = SimulatedDevice::device();
  const StepPlan plan =
      plan_of_a_mixture({.model = "vit_digits", .overrides = {}},
                        {.batch = kMixed, .device = planned, .optimizer_state = {}});
  const auto model = models::make_model("vit_digits", {}, {.device = device});
  return verify(*model, {.modes = {}, .plans = {plan}, .batch = kMixed}).front();
}

nlohmann::json row_of(const nlohmann::json& told, const std::string& mode) {
  for (const auto& row : told.at("rows")) {
    if (row.at("mode").get<std::string>() == mode) return row;
  }
  return {};
}

TEST(DeviceProgram, VerifyPlansForTheDevice) {
  const VerifyRow planned_here = row_of_a_mixture(SimulatedDevice::device());
  // Else nobody could tell the two plans apart.
  ASSERT_NE(row_of_a_mixture(at::kCPU).drift, planned_here.drift);

  const ProgramRun run =
      run_program({"verify", "--model", "vit_digits", "--modes", "auto", "--batch",
                   std::to_string(kMixed), "--device", "simulated", "--json", "-"});
  ASSERT_EQ(run.code, 0) << without_backtrace(run);
  const auto row = row_of(nlohmann::json::parse(run.out), "auto");
  EXPECT_EQ(row.at("drift").get<double>(), planned_here.drift);
  EXPECT_EQ(row.at("max_rel_error").get<double>(), planned_here.max_rel_error);
}

TEST(DeviceProgram, DemoComparesAndPlansOnTheDevice) {
  const ProgramRun verified = run_program(
      {"verify", "--model", "vit_digits", "--batch", "8", "--device", "simulated", "--json", "-"});
  ASSERT_EQ(verified.code, 0) << without_backtrace(verified);
  const auto gradients = nlohmann::json::parse(verified.out);

  const ProgramRun demo = run_program(
      {"demo", "--steps", "3", "--batch", "16", "--device", "simulated", "--json", "-"});
  ASSERT_EQ(demo.code, 0) << without_backtrace(demo);
  const auto told = nlohmann::json::parse(demo.out);
  EXPECT_EQ(told.value("device", ""), "simulated:0");
  EXPECT_TRUE(told.at("same_loss").get<bool>());
  for (const auto& row : told.at("rows")) {
    const auto mode = row.at("mode").get<std::string>();
    EXPECT_EQ(row.at("max_rel_error"), row_of(gradients, mode).at("max_rel_error")) << mode;
  }
  // Planned for half of what mode stored needed.
  const auto peak = [&](const char* mode) {
    return row_of(told, mode).at("activation_peak_bytes").get<std::int64_t>();
  };
  EXPECT_LE(peak("auto"), peak("stored") / 2);
  EXPECT_GT(peak("auto"), peak("reprop"));
}

TEST(DeviceProgram, PredictsAsOnTheCpu) {
  const ScratchFolder folder;
  const std::string out = folder / "run", image = folder / "digit.png";
  ASSERT_EQ(run_program(small_train(out, "simulated")).code, 0);
  io::testing::put(image, data::testing::png_bytes(data::testing::slope(8, 8, 1)));
  const auto guesses = [&](const std::string& device) {
    const ProgramRun run = run_program(
        {"predict", "--run", out, "--device", device, "--top", "10", "--json", "-", image});
    EXPECT_EQ(run.code, 0) << without_backtrace(run);
    return nlohmann::json::parse(run.out).at("rows").at(0).at("guesses");
  };
  SimulatedDevice::reset_counts();
  const auto there = guesses("simulated:1");
  EXPECT_GT(SimulatedDevice::counts().launches, 0);
  SimulatedDevice::reset_counts();
  const auto here = guesses("cpu");
  EXPECT_EQ(SimulatedDevice::counts().launches, 0);
  ASSERT_EQ(there.size(), here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(there[i].at("name"), here[i].at("name"));
    EXPECT_NEAR(there[i].at("probability").get<double>(), here[i].at("probability").get<double>(),
                1e-5);
  }
}

// Between what storing everything takes and what the leanest way takes: some of both is kept.
TEST(DeviceProgram, TrainingAndBenchKeepToABudgetAsPlanned) {
  const ScratchFolder folder;
  const std::vector<std::string> step = {"--model", "vit_digits", "--batch",
                                         "16",      "--device",   "simulated"};
  const auto with = [&](std::vector<std::string> command, std::vector<std::string> more) {
    command.insert(command.end(), step.begin(), step.end());
    command.insert(command.end(), more.begin(), more.end());
    const ProgramRun run = run_program(command);
    EXPECT_EQ(run.code, 0) << without_backtrace(run);
    return run.out;
  };
  const auto plan_for = [&](std::int64_t bytes) {
    return nlohmann::json::parse(
        with({"plan"}, {"--budget", std::to_string(bytes) + "B", "--json", "-"}));
  };
  const auto all = plan_for(std::int64_t{1} << 30);
  EXPECT_TRUE(all.at("fits").get<bool>());
  const auto most = all.at("predicted_peak_bytes").get<std::int64_t>(),
             least = all.at("smallest_budget_bytes").get<std::int64_t>();
  const std::int64_t budget = least + (most - least) / 2;
  const auto planned = plan_for(budget);
  EXPECT_LE(planned.at("predicted_peak_bytes").get<std::int64_t>(), budget);

  const std::string text = std::to_string(budget) + "B", out = folder / "run";
  // Batches that wait are many, and in the memory of the host.
  with({"train"}, {"--data", "digits", "--steps", "3", "--log-every", "1", "--workers", "64",
                   "--budget", text, "--out", out});
  std::istringstream lines(io::testing::content(out + "/metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("peak_bytes")) continue;
    ++steps;
    EXPECT_GE(record.at("reserved_peak_bytes").get<std::int64_t>(),
              record.at("peak_bytes").get<std::int64_t>());
    const auto peak = record.at("peak_bytes").get<double>(),
               predicted = record.at("predicted_peak_bytes").get<double>();
    EXPECT_LE(peak, static_cast<double>(budget));
    EXPECT_NEAR(peak / predicted, 1.0, 0.05);
  }
  EXPECT_EQ(steps, 3);

  // Without the optimizer's state, which bench does not have.
  const auto bench =
      nlohmann::json::parse(with({"bench"}, {"--modes", "stored,reprop", "--rounds", "1", "--steps",
                                             "1", "--budget", text, "--json", "-"}));
  const auto row = row_of(bench, "auto");
  EXPECT_TRUE(row.at("fits").get<bool>());
  EXPECT_EQ(row.at("budget_bytes").get<std::int64_t>(), budget);
  EXPECT_LE(row.at("peak_bytes").get<std::int64_t>(), budget);
  EXPECT_NEAR(row.at("peak_bytes").get<double>() / row.at("predicted_peak_bytes").get<double>(),
              1.0, 0.05);
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
  SimulatedDevice::set_operator_time(std::chrono::microseconds(40));
  const ProgramRun run = run_program({"doctor", "--device", "simulated:1", "--quick", "--model",
                                      "vit_digits", "--batch", "2", "--out", file});
  SimulatedDevice::set_operator_time(std::chrono::microseconds(0));
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
  ASSERT_EQ(json.at("raced").size(), 2 * (preset_modes().size() + 1));
  for (const auto& one : json.at("raced")) {
    EXPECT_GT(one.at("samples_per_s").get<double>(), 0.0);
    EXPECT_GT(one.at("peak_bytes").get<std::int64_t>(), 0);
    EXPECT_GE(one.at("reserved_peak_bytes"), one.at("peak_bytes"));
    EXPECT_GT(one.at("predicted_peak_bytes").get<std::int64_t>(), 0);
    if (one.at("mode") == "auto") continue;
    EXPECT_GE(one.at("predicted_reserved_bytes"), one.at("predicted_peak_bytes"));
    // Operators take longer than the host needs to issue them, so streams work beside each other.
    const double recover = one.at("recover_ms"), overlap = one.at("overlap_ms");
    const std::string mode = one.at("mode");
    EXPECT_EQ(recover > 0.0, mode == "reprop" || mode == "pareprop" || mode == "checkpoint") << one;
    EXPECT_LE(overlap, recover);
    if (mode == "pareprop") {
      EXPECT_GT(overlap, 0.0) << one;
    } else {
      EXPECT_EQ(overlap, 0.0) << one;
    }
  }
  EXPECT_EQ(SimulatedDevice::memory(0).allocated, 0) << "the other device was left alone";
}

}  // namespace
}  // namespace pareprop::cli
