#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using Outcome = testing::ProgramRun;
using testing::run_program;
using testing::ScratchFolder;

Outcome plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return run_program(arguments);
}

nlohmann::json json_of(const Outcome& outcome) { return nlohmann::json::parse(outcome.out); }

TEST(Plan, TellsPoliciesAndBytesWithinTheBudget) {
  const Outcome outcome =
      plan({"--model", "vit_cifar", "--batch", "32", "--budget", "60MB", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto answer = json_of(outcome);
  EXPECT_TRUE(answer.at("fits").get<bool>());
  EXPECT_EQ(answer.at("budget_bytes").get<std::int64_t>(), 60'000'000);
  const auto at_most = answer.at("predicted_at_most_bytes").get<std::int64_t>();
  EXPECT_LE(at_most, 60'000'000);
  EXPECT_LE(answer.at("predicted_peak_bytes").get<std::int64_t>(), at_most);
  EXPECT_LE(answer.at("smallest_budget_bytes").get<std::int64_t>(), at_most);
  EXPECT_GE(answer.at("largest_batch").get<std::int64_t>(), 32);
  ASSERT_EQ(answer.at("blocks").size(), 6U);
  EXPECT_EQ(answer.at("blocks")[5].at("stack").get<int>(), 0);
  EXPECT_EQ(answer.at("blocks")[5].at("block").get<int>(), 5);
}

TEST(Plan, ForPeopleATableAPictureAndTheBytesEchoed) {
  const Outcome outcome = plan({"--model", "swin_cifar", "--batch", "2", "--budget", "1GiB"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* expected :
       {"budget 1.0 GiB (1073741824 bytes)", "reprop", "pareprop", "the plan", "  SS", "optimizer",
        "Smallest budget for this batch", "Largest batch for this budget"}) {
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << "\n" << outcome.out;
  }
}

TEST(Plan, PartsThatNeedNoRecomputationAreTaken) {
  const std::vector<std::string> ask = {"--model", "vit_cifar", "--batch",
                                        "64",      "--budget",  "60MiB"};
  const Outcome outcome = plan(ask);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("The batch is computed in "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" more: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" times as fast"), std::string::npos) << outcome.out;
  std::vector<std::string> and_json = ask;
  and_json.insert(and_json.end(), {"--json", "-"});
  const auto answer = json_of(plan(and_json));
  EXPECT_GT(answer.at("parts").get<int>(), 1);
  EXPECT_EQ(answer.at("parts").get<int>() * answer.at("micro_batch").get<int>(), 64);
  ASSERT_EQ(answer.at("kinds").size(), 2U) << "the whole batch, and in parts";
  EXPECT_EQ(answer.at("kinds")[0].at("parts").get<int>(), 1);
  EXPECT_GT(answer.at("kinds")[1].at("parts").get<int>(), 1);
  EXPECT_GT(answer.at("more").at("bytes").get<std::int64_t>(), 0);
  EXPECT_GT(answer.at("more").at("speed").get<double>(), 1.0);
  EXPECT_LT(answer.at("less").at("speed").get<double>(), 1.0);
}

TEST(Plan, TakesWhatIsAllowed) {
  const auto ask_for = [](const std::string& budget) {
    return std::vector<std::string>{"--model",  "vit_cifar", "--batch", "4",
                                    "--budget", budget,      "--json",  "-"};
  };
  const auto least = json_of(plan(ask_for("1MiB"))).at("smallest_budget_bytes").get<std::int64_t>();
  const std::vector<std::string> ask = ask_for(std::to_string(least - 100'000) + "B");
  EXPECT_EQ(plan(ask).code, 1);
  std::vector<std::string> allowed = ask;
  allowed.insert(allowed.end(), {"--allow", "lean-state,update-inside"});
  const Outcome outcome = plan(allowed);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto answer = json_of(outcome);
  EXPECT_NE(answer.at("flags").get<std::string>(), "");
  EXPECT_EQ(answer.at("kinds").size(), 7U);
  EXPECT_NE(answer.at("command").get<std::string>().find(" --allow lean-state,update-inside"),
            std::string::npos);
}

TEST(Plan, WhatDoesNotFitIsSaidWithWhatWould) {
  const Outcome some = plan({"--model", "vit_cifar", "--batch", "512", "--update", "inside",
                             "--budget", "60MiB", "--json", "-"});
  EXPECT_EQ(some.code, 1);
  const auto answer = json_of(some);
  EXPECT_FALSE(answer.at("fits").get<bool>());
  EXPECT_GT(answer.at("smallest_budget_bytes").get<std::int64_t>(), 60 << 20);
  EXPECT_GT(answer.at("largest_batch").get<std::int64_t>(), 0);

  const Outcome nothing = plan({"--model", "vit_cifar", "--batch", "4", "--budget", "1MiB"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_NE(nothing.err.find("not even one sample fits: use a smaller network or more memory"),
            std::string::npos)
      << nothing.err;
}

TEST(Plan, NamesTheAllowanceThatWouldFit) {
  const auto refusal = [](const char* budget, std::vector<std::string> more) {
    more.insert(more.end(), {"--model", "vit_cifar", "--batch", "1", "--budget", budget});
    const Outcome outcome = plan(more);
    EXPECT_EQ(outcome.code, 1);
    return outcome.err;
  };
  const auto expect_has = [](const std::string& words, const std::string& part) {
    EXPECT_NE(words.find(part), std::string::npos) << words;
  };
  const std::string lean = refusal("13500KiB", {});
  expect_has(lean, "mostly optimizer; --optimizer-state 8bit would fit, in at most ");
  expect_has(lean, " (--allow lean-state lets the plan choose it)\n");
  EXPECT_EQ(lean.find("use a smaller network"), std::string::npos) << lean;
  expect_has(refusal("11MiB", {}), "--update inside --optimizer-state 8bit would fit");
  expect_has(refusal("14MiB", {"--processes", "4"}), "; --shard gradients would fit");
  EXPECT_EQ(refusal("13500KiB", {"--optimizer", "none", "--precision", "fp64"}).find("would fit"),
            std::string::npos);
}

TEST(Plan, UpdatesInsideGoBackOnceWithoutClipping) {
  const auto seconds = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--model", "vit_cifar", "--batch", "4", "--update", "inside",
                             "--budget", "1GiB", "--json", "-"});
    const auto answer = json_of(plan(more));
    return std::pair(answer.at("predicted_peak_bytes").get<std::int64_t>(),
                     answer.at("command").get<std::string>());
  };
  const auto [clipped, usual] = seconds({});
  const auto [unclipped, command] = seconds({"--clip", "0"});
  EXPECT_LT(unclipped, clipped) << "a graph that is gone back over twice is kept longer";
  EXPECT_EQ(usual.find("--clip"), std::string::npos);
  EXPECT_NE(command.find(" --clip 0 "), std::string::npos) << command;
}

TEST(Plan, OfANetworkThatNoMachineHereCouldHold) {
  const Outcome outcome =
      plan({"--model", "vit_gigantic", "--batch", "8", "--budget", "80GiB", "--json", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(json_of(outcome).at("predicted_peak_bytes").get<std::int64_t>(),
            std::int64_t{20} << 30);
}

TEST(Plan, TimesAreMeasuredOnceAndKept) {
  const ScratchFolder folder;
  ASSERT_EQ(setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1), 0);
  const std::vector<std::string> ask = {"--model",   "vit_cifar", "--depth",  "2",
                                        "--batch",   "2",         "--budget", "1GiB",
                                        "--measure", "--json",    "-"};
  const Outcome first = plan(ask), second = plan(ask);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(json_of(first).at("measured").get<bool>());
  EXPECT_EQ(json_of(first), json_of(second));
  EXPECT_FALSE(std::filesystem::is_empty(folder / "cache/pareprop"));
  unsetenv("XDG_CACHE_HOME");
}

TEST(Plan, MeasuresAnewWhenAsked) {
  const ScratchFolder folder;
  ASSERT_EQ(setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1), 0);
  std::vector<std::string> ask = {"--model",  "vit_cifar", "--depth", "2", "--batch",  "2",
                                  "--budget", "1GiB",      "--json",  "-", "--measure"};
  ASSERT_EQ(plan(ask).code, 0);
  const auto file = *std::filesystem::directory_iterator(folder / "cache/pareprop");
  auto times = nlohmann::json::parse(testing::content(file.path().string()));
  for (auto& size : times["sizes"]) size["rest"] = 1000.0;
  std::ofstream(file.path()) << times;
  EXPECT_GT(json_of(plan(ask)).at("step_seconds").get<double>(), 1000.0) << "they were kept";
  ask.emplace_back("again");
  const Outcome anew = plan(ask);
  ASSERT_EQ(anew.code, 0) << anew.err;
  EXPECT_LT(json_of(anew).at("step_seconds").get<double>(), 1000.0);
  const auto again = nlohmann::json::parse(testing::content(file.path().string()));
  for (const auto& size : again["sizes"]) EXPECT_LT(size["rest"], 1000.0);
  unsetenv("XDG_CACHE_HOME");
}

// Words of a line as a shell splits it, where nothing is quoted.
std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Plan, EndsWithTheCommandThatTrainsSo) {
  const Outcome people = plan({"--model", "vit_cifar", "--depth", "3", "--width", "128", "--batch",
                               "32", "--budget", "60 MB", "--precision", "bf16"});
  ASSERT_EQ(people.code, 0) << people.err;
  const auto begin = people.out.rfind("\n  pareprop train ");
  ASSERT_NE(begin, std::string::npos) << people.out;
  std::vector<std::string> words = words_of(people.out.substr(begin));
  words.erase(words.begin());
  words.emplace_back("--dry-run");
  const Outcome train = run_program(words);
  ASSERT_EQ(train.code, 0) << train.err;
  const auto config = json_of(train);
  EXPECT_EQ(config["model"], "vit_cifar");
  EXPECT_EQ(config["depth"], nlohmann::json::array({3}));
  EXPECT_EQ(config["width"], 128);
  EXPECT_EQ(config["image_size"], 32);
  EXPECT_EQ(config["batch"], 32);
  EXPECT_EQ(config["precision"], "bf16");
  EXPECT_EQ(config["streams"], "float") << "as the plan's";
  EXPECT_EQ(config["budget"], "60MB");
}

TEST(Plan, OfTextTrainsWithTheVocabularyThatWasPlanned) {
  const std::vector<std::string> small = {
      "--model",   "roberta_base", "--width", "24", "--depth",  "1",
      "--seq-len", "16",           "--batch", "4",  "--budget", "1GiB"};
  for (const std::string vocabulary : {"300", "50265"}) {
    std::vector<std::string> ask = small;
    ask.insert(ask.end(), {"--json", "-"});
    if (vocabulary == "300") ask.insert(ask.end(), {"--vocabulary", vocabulary});
    const Outcome outcome = plan(ask);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto answer = json_of(outcome);
    EXPECT_NE(answer["command"].get<std::string>().find(" --vocabulary " + vocabulary + " "),
              std::string::npos)
        << answer["command"];
    EXPECT_NE(answer["command_note"].get<std::string>().find(vocabulary + " tokens"),
              std::string::npos);
  }
  EXPECT_NE(plan({"--model", "vit_cifar", "--depth", "1", "--budget", "1GiB"})
                .out.find("The plan assumes 10 classes; training takes the number from the data."),
            std::string::npos);
}

TEST(Plan, IsOfTheNetworkWithItsEndingAndEncoder) {
  const auto command = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--depth", "1", "--width", "24", "--budget", "1GiB", "--json", "-"});
    const Outcome outcome = plan(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json_of(outcome)["command"].get<std::string>();
  };
  const std::string ended = command({"--model", "vit_cifar", "--ending", "sum-x", "--class-token"});
  EXPECT_NE(ended.find(" --ending sum-x --class-token "), std::string::npos) << ended;
  const std::string behind = command({"--model", "roberta_base", "--plain", "--encoder", "roberta",
                                      "--seq-len", "16", "--vocabulary", "300"});
  EXPECT_NE(behind.find(" --plain --encoder roberta "), std::string::npos) << behind;
  // `train` refuses BERT, and guesses words whatever the network is.
  EXPECT_EQ(command({"--model", "roberta_base", "--plain", "--encoder", "bert", "--seq-len", "16",
                     "--vocabulary", "300"}),
            "");
  EXPECT_EQ(command({"--model", "roberta_base", "--classes", "3", "--seq-len", "16", "--vocabulary",
                     "300"}),
            "");
  const Outcome wrong = plan({"--model", "vit_cifar", "--ending", "both"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("--ending: expected concat, sum, mean, y1, y2 or sum-x, got 'both'"),
            std::string::npos)
      << wrong.err;
}

TEST(Plan, SaysWhereNothingIsMeasured) {
  // More than any machine that this runs on has: the network must not be made.
  const Outcome large =
      plan({"--model", "vit_tiny", "--depth", "2", "--batch", "1048576", "--update", "inside",
            "--measure", "--budget", "100TB", "--json", "-"});
  EXPECT_EQ(large.code, 0) << large.err;
  EXPECT_NE(large.err.find("not even mode reprop fits"), std::string::npos) << large.err;
}

TEST(Plan, JsonHasAllThatItsTextHas) {
  const std::vector<std::string> ask = {"--model", "vit_cifar", "--batch",
                                        "32",      "--budget",  "60MB"};
  const Outcome people = plan(ask);
  std::vector<std::string> and_json = ask;
  and_json.insert(and_json.end(), {"--json", "-"});
  const auto answer = json_of(plan(and_json));
  ASSERT_EQ(answer.at("modes").size(), 4U);
  for (const auto& row : answer.at("modes")) {
    const std::string line = std::string("\n").append(row.at("mode").get<std::string>()) + " ";
    EXPECT_NE(people.out.find(line), std::string::npos);
    EXPECT_EQ(row.at("fits").get<bool>(),
              row.at("at_most_bytes").get<std::int64_t>() <= 60'000'000);
    EXPECT_GT(row.at("step_seconds").get<double>(), 0.0);
    EXPECT_GT(row.at("speed").get<double>(), 0.0);
  }
  for (const char* key : {"policies", "command"}) {
    EXPECT_NE(people.out.find("\n  " + answer.at(key).get<std::string>() + "\n"), std::string::npos)
        << key << "\n"
        << people.out;
  }
}

TEST(Plan, BadInputIsNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--budget", "8"}, "the unit is missing"},
      {{"--budget", "8G"}, "'g' is not a unit"},
      {{"--batch", "0"}, "--batch: expected 1 or more, got 0"},
      {{"--clip", "-1"}, "--clip: expected 0 or more, got -1"},
      {{"--accumulate", "0"}, "--accumulate: expected 1 or more, got 0"},
      {{"--optimizer", "lion"}, "--optimizer: expected adamw, sgd or adafactor, got 'lion'"},
      {{"--optimizer-state", "4bit"}, "--optimizer-state: expected fp32, bf16 or 8bit"},
      {{"--optimizer-state", "8bit", "--precision", "fp64"}, "--optimizer-state: expected fp32"},
      {{"--allow", "everything"}, "--allow: expected lean-state, update-inside, or both"},
      {{"--allow", "update-inside", "--accumulate", "2"}, "--allow: expected no update-inside"},
      {{"--model", "vit_enormous"}, "unknown model"},
      {{"--precision", "fp8"}, "unknown precision"},
      {{"--measure", "never"}, "--measure: expected no value, or 'again'"},
      {{"--modes", "reprop"}, "--modes"}};
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = plan(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
    EXPECT_EQ(testing::lines(outcome.err), 1);
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace pareprop::cli
