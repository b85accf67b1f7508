#include "cli/run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "pareprop/graph/policy.h"
#include "pareprop/models/registry.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using nlohmann::json;
using testing::content;
using testing::expect_success;
using testing::run_program;
using testing::ScratchFolder;

std::set<std::string> keys(const json& object) {
  std::set<std::string> result;
  for (const auto& item : object.items()) result.insert(item.key());
  return result;
}

std::vector<std::string> modes_of(const json& rows) {
  std::vector<std::string> result;
  for (const json& row : rows) result.push_back(row["mode"]);
  return result;
}

const std::vector<std::string> kAllModes{"stored", "checkpoint", "reprop", "pareprop", "auto"};

TEST(Models, JsonHasARowForEveryModel) {
  const auto run = run_program({"models", "--json", "-"});
  expect_success(run);
  const json rows = json::parse(run.out).at("rows");
  ASSERT_EQ(rows.size(), models::model_names().size());
  const std::set<std::string> expected{"model",
                                       "parameters",
                                       "gmacs",
                                       "tokens",
                                       "stacks",
                                       "activation_bytes_stored",
                                       "activation_bytes_reversible",
                                       "step_bytes",
                                       "train_bytes",
                                       "fits"};
  for (const json& row : rows) {
    EXPECT_EQ(keys(row), expected);
    EXPECT_GT(row["parameters"], 0);
    EXPECT_GT(row["activation_bytes_stored"], row["activation_bytes_reversible"]);
  }
  EXPECT_EQ(rows[0]["stacks"], json::array({12}));
}

TEST(Models, PlainTwinsAndWhatDoesNotFit) {
  const auto run = run_program({"models", "--plain", "--json", "-"});
  expect_success(run);
  const json rows = json::parse(run.out).at("rows");
  ASSERT_EQ(rows.size(), models::model_names().size());
  for (const json& row : rows) {
    EXPECT_FALSE(row["stacks"].empty());
    const double weights = row["parameters"].get<double>() * 4;
    EXPECT_GT(row["step_bytes"].get<double>(), 2 * weights);
    EXPECT_DOUBLE_EQ(row["train_bytes"].get<double>() - row["step_bytes"].get<double>(),
                     2 * weights);
    if (row["model"] == "roberta_xxl") {
      EXPECT_GT(row["step_bytes"].get<double>(), 75e9);
    }
  }
}

TEST(Bench, HasARowForEachMode) {
  const auto run = run_program({"bench", "--model", "vit_digits", "--depth", "3", "--rounds", "1",
                                "--steps", "2", "--json", "-"});
  expect_success(run);
  const json rows = json::parse(run.out).at("rows");
  EXPECT_EQ(modes_of(rows), kAllModes);
  for (const json& row : rows) {
    EXPECT_GT(row["step_ms"], 0.0);
    EXPECT_LE(row["step_ms_best"], row["step_ms"]);
    EXPECT_GT(row["samples_per_s"], 0.0);
    EXPECT_GT(row["gflops"], 0.0);
    EXPECT_GT(row["peak_bytes"], row["activation_peak_bytes"]);
    EXPECT_EQ(row["loss"], rows[0]["loss"]);
    EXPECT_EQ(row["depth"], 3);
  }
  EXPECT_GT(rows[0]["activation_peak_bytes"], rows[2]["activation_peak_bytes"]);
}

TEST(Bench, OfAPlainNetworkHasItsModes) {
  const auto run =
      run_program({"bench", "--model", "vit_digits", "--plain", "--rounds", "1", "--steps", "1"});
  expect_success(run);
  EXPECT_NE(run.out.find("plain vit_digits"), std::string::npos);
  EXPECT_NE(run.out.find("checkpoint"), std::string::npos);
  EXPECT_EQ(run.out.find("reprop"), std::string::npos);
}

TEST(Verify, HoldsForAPlainNetwork) {
  const auto run = run_program({"verify", "--model", "vit_digits", "--plain", "--json", "-"});
  expect_success(run);
  EXPECT_EQ(modes_of(json::parse(run.out).at("rows")),
            (std::vector<std::string>{"stored", "checkpoint", "auto"}));
}

TEST(Models, TableAndFileTogether) {
  const ScratchFolder folder;
  const auto run = run_program({"models", "--json", folder / "models.json"});
  expect_success(run);
  for (const std::string& name : models::model_names()) {
    EXPECT_NE(run.out.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(json::parse(content(folder / "models.json")).at("rows").size(),
            models::model_names().size());
  EXPECT_EQ(folder.files(), 1);
}

TEST(Verify, HoldsForText) {
  const auto run =
      run_program({"verify", "--model", "roberta_base", "--depth", "3", "--width", "48",
                   "--seq-len", "16", "--vocabulary", "99", "--exact", "--json", "-"});
  expect_success(run);
  EXPECT_EQ(modes_of(json::parse(run.out)["rows"]), kAllModes);
}

TEST(Verify, EveryModeHoldsAtOddDepth) {
  const auto run = run_program(
      {"verify", "--model", "vit_tiny", "--depth", "7", "--image-size", "32", "--json", "-"});
  expect_success(run);
  const json result = json::parse(run.out);
  EXPECT_EQ(result["model"], "vit_tiny");
  EXPECT_EQ(result["depth"], 7);
  EXPECT_EQ(result["batch"], 2);
  EXPECT_EQ(result["precision"], "fp32");
  EXPECT_EQ(result["arithmetic"], "float");
  EXPECT_EQ(result["tolerance"], 1e-5);
  EXPECT_EQ(result["ok"], true);
  EXPECT_EQ(modes_of(result["rows"]), kAllModes);
  const std::set<std::string> expected{
      "mode", "max_rel_error", "bit_identical", "missing_gradients", "drift", "holds"};
  for (const json& row : result["rows"]) {
    EXPECT_EQ(keys(row), expected);
    EXPECT_EQ(row["holds"], true) << row;
    EXPECT_EQ(row["missing_gradients"], 0);
    EXPECT_LE(row["max_rel_error"], 1e-5);
  }
}

TEST(Verify, ExactStreamsAreBitIdentical) {
  const auto run = run_program({"verify", "--model", "vit_digits", "--exact", "--dropout", "0.1",
                                "--drop-path", "0.1", "--json", "-"});
  expect_success(run);
  const json result = json::parse(run.out);
  EXPECT_EQ(result["arithmetic"], "exact");
  for (const json& row : result["rows"]) EXPECT_EQ(row["bit_identical"], true) << row;
}

TEST(Verify, RunsTheModesAskedForAndPrintsATable) {
  const auto run = run_program({"verify", "--model", "vit_digits", "--depth", "1", "--precision",
                                "fp64", "--modes", "reprop,stored", "--seed", "3"});
  expect_success(run);
  const auto reprop = run.out.find("\nreprop "), stored = run.out.find("\nstored ");
  ASSERT_NE(reprop, std::string::npos) << run.out;
  ASSERT_NE(stored, std::string::npos) << run.out;
  EXPECT_LT(reprop, stored);
  EXPECT_EQ(run.out.find("\npareprop "), std::string::npos);
  EXPECT_NE(run.out.find("fp64"), std::string::npos);
}

TEST(Demo, FewStepsRunInEveryMode) {
  const ScratchFolder folder;
  const auto run = run_program({"demo", "--threads", "1", "--steps", "3", "--batch", "16", "--out",
                                folder / "out", "--json", folder / "demo.json"});
  expect_success(run);
  for (const std::string& mode : kAllModes) {
    EXPECT_NE(run.out.find("\n" + mode + " "), std::string::npos) << mode << "\n" << run.out;
  }
  EXPECT_NE(run.out.find("same loss in every mode: yes"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\nlane 1"), std::string::npos) << run.out;
  EXPECT_EQ(content(folder / "out/lanes.svg").rfind("<svg", 0), 0u);
  EXPECT_TRUE(json::parse(content(folder / "out/trace.json")).contains("traceEvents"));

  const json result = json::parse(content(folder / "demo.json"));
  EXPECT_EQ(result["ok"], true);
  EXPECT_EQ(modes_of(result["rows"]), kAllModes);
  const auto peak = [&](int row) { return result["rows"][row]["activation_peak_bytes"]; };
  EXPECT_GT(peak(0), peak(1));
  EXPECT_GT(peak(1), peak(2));
  EXPECT_GT(peak(2), 0);
}

TEST(Demo, JsonOnStandardOutputIsAlone) {
  const auto run =
      run_program({"demo", "--threads", "1", "--steps", "1", "--batch", "4", "--json", "-"});
  expect_success(run);
  EXPECT_EQ(json::parse(run.out).at("rows").size(), kAllModes.size());
}

TEST(Help, ShowsDefaults) {
  const auto run = run_program({"verify", "--help"});
  expect_success(run);
  for (const char* text : {"vit_tiny", "fp32", "stored,checkpoint,reprop,pareprop,auto", "--exact",
                           "--json", "(default: the model's)"}) {
    EXPECT_NE(run.out.find(text), std::string::npos) << text << "\n" << run.out;
  }
  expect_success(run_program({"--help"}));
  expect_success(run_program({"demo", "--help"}));
}

TEST(Help, Version) {
  const auto run = run_program({"--version"});
  expect_success(run);
  EXPECT_EQ(run.out.rfind("pareprop ", 0), 0u);
  EXPECT_EQ(testing::lines(run.out), 1);
}

}  // namespace
}  // namespace pareprop::cli
