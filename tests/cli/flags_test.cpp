#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "pareprop/train/train_config.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using nlohmann::json;
using testing::content;
using testing::expect_flags_of;
using testing::expect_success;
using testing::flags_in;
using testing::lines;
using testing::run_program;
using testing::ScratchFolder;

constexpr const char* kCommands[] = {"models", "plan",   "train", "eval", "predict", "verify",
                                     "bench",  "report", "trace", "demo", "doctor",  "completion"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

json config_of_dry_run(const std::vector<std::string>& flags) {
  const auto run = run_program(joined({"train", "--dry-run", "--model", "vit_digits"}, flags));
  EXPECT_EQ(run.code, 0) << run.err;
  return json::parse(run.out, nullptr, false);
}

TEST(Aliases, OfOtherTrainersMeanTheSame) {
  const json config = config_of_dry_run({"--lr",
                                         "0.5",
                                         "--per_device_train_batch_size=7",
                                         "--output-dir",
                                         "x",
                                         "--num-workers",
                                         "0",
                                         "--bf16",
                                         "--max_steps",
                                         "3",
                                         "--gradient-accumulation-steps",
                                         "2",
                                         "--wd",
                                         "0.25",
                                         "--lr_scheduler_type",
                                         "linear",
                                         "--warmup-ratio",
                                         "0.5",
                                         "--save-steps",
                                         "4",
                                         "--eval-steps",
                                         "5",
                                         "--logging_steps=6",
                                         "--max_grad_norm",
                                         "8",
                                         "--weight_decay",
                                         "0.125"});
  EXPECT_EQ(config["learning_rate"], 0.5);
  EXPECT_EQ(config["batch"], 7);
  EXPECT_EQ(config["out"], "x");
  EXPECT_EQ(config["workers"], 0);
  EXPECT_EQ(config["precision"], "bf16");
  EXPECT_EQ(config["steps"], 3);
  EXPECT_EQ(config["accumulate"], 2);
  EXPECT_EQ(config["weight_decay"], 0.125) << "the last one counts";
  EXPECT_EQ(config["decay"], "linear");
  EXPECT_EQ(config["warmup"], 0.5);
  EXPECT_EQ(config["save_every"], 4);
  EXPECT_EQ(config["eval_every"], 5);
  EXPECT_EQ(config["log_every"], 6);
  EXPECT_EQ(config["clip"], 8.0);
}

TEST(Aliases, AreKnownWhereverTheirFlagIs) {
  const ScratchFolder folder;
  const auto trace = run_program({"trace", "--model", "vit_digits", "--depth", "1", "--batch_size",
                                  "2", "--max-steps", "1", "--output-dir", folder / "t.json"});
  EXPECT_EQ(trace.code, 0) << trace.err;
  EXPECT_EQ(folder.files(), 1);
  for (const char* command : {"bench", "demo", "trace"}) {
    EXPECT_NE(run_program({command, "--help"}).out.find("--output-dir is"), std::string::npos);
  }
}

TEST(Aliases, StandInHelpWithFlagsThatThereAre) {
  const std::string help = run_program({"train", "--help"}).out;
  const auto told = help.find("Names of other trainers");
  ASSERT_NE(told, std::string::npos) << help;
  for (const char* alias : {"--lr", "--batch-size", "--output-dir", "--num-workers"}) {
    EXPECT_TRUE(flags_in(help.substr(told)).contains(alias)) << alias;
  }
  static const std::regex meaning("is (--[a-z0-9-]+)");
  const std::string words = help.substr(told), flags = help.substr(0, told);
  int count = 0;
  for (std::sregex_iterator at(words.begin(), words.end(), meaning), end; at != end;
       ++at, ++count) {
    EXPECT_TRUE(flags_in(flags).contains((*at)[1].str())) << (*at)[1];
  }
  EXPECT_GT(count, 30);
}

TEST(UnknownFlag, TheNearestIsNamedInEveryCommand) {
  for (const char* command : kCommands) {
    const auto run = run_program({command, "--hlep"});
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(run.err, "pareprop: '" + std::string(command) +
                           "' has no flag --hlep; the nearest is --help; see 'pareprop " + command +
                           " --help'\n");
  }
  EXPECT_NE(run_program({"train", "--learnig-rate=1"}).err.find("nearest is --learning-rate;"),
            std::string::npos);
  EXPECT_NE(run_program({"train", "--batchsize", "1"}).err.find("nearest is --batch;"),
            std::string::npos)
      << "what an alias stands for";
  for (const char* far : {"--qqqqqqqq", "--tensorboard", "--distributed-backend"}) {
    const auto run = run_program({"train", far});
    EXPECT_EQ(run.err.find("nearest"), std::string::npos) << run.err;
  }
  EXPECT_NE(run_program({"trian"}).err.find("no command 'trian'; the nearest is 'train'"),
            std::string::npos);
}

TEST(UnknownFlag, WithOneDashIsNamedToo) {
  for (const auto& [word, near] : {std::pair{"-lr", "--learning-rate"},
                                   {"-batch", "--batch"},
                                   {"-batch_size=4", "--batch"},
                                   {"-help", "--help"}}) {
    const auto run = run_program({"train", word, "0.1"});
    EXPECT_EQ(run.code, 2);
    const std::string flag = std::string(word).substr(0, std::string(word).find('='));
    EXPECT_EQ(run.err, "pareprop: 'train' has no flag " + flag + "; the nearest is " + near +
                           "; see 'pareprop train --help'\n");
  }
  EXPECT_NE(run_program({"train", "--clip", "-1"}).err.find("--clip: expected"), std::string::npos)
      << "a number is no flag";
}

TEST(Messages, SpellEveryFieldAsItsFlag) {
  const ScratchFolder folder;
  for (const train::ConfigField& field : train::fields({})) {
    if (field.is_switch) continue;
    const std::string flag = train::flag_name(field.key);
    int refused = 0;
    for (const std::string value : {"x", "-1", "nan", "1e300", "18446744073709551616"}) {
      // Not the ones that any text may be.
      if (field.key == "data" || field.key == "out" || field.key == "resume" ||
          field.key == "weights" || field.key == "tokenizer" || field.key == "model") {
        break;
      }
      const auto run = run_program(
          {"train", "--out", folder / "run", "--dry-run", "--model", "vit_digits", flag, value});
      if (run.code == 0) continue;
      ++refused;
      EXPECT_EQ(run.code, 2) << run.err;
      EXPECT_EQ(run.err.rfind("pareprop: ", 0), 0u) << run.err;
      if (field.key.find('_') != std::string::npos) {
        EXPECT_EQ(run.err.find(field.key), std::string::npos) << run.err;
      }
      expect_flags_of("train", run);
      if (value == "x") {
        EXPECT_EQ(run.err.rfind("pareprop: " + flag + ": ", 0), 0u) << run.err;
      }
    }
    if (field.key != "data" && field.key != "out" && field.key != "resume" &&
        field.key != "weights" && field.key != "tokenizer" && field.key != "model") {
      EXPECT_GT(refused, 1) << flag;
    }
  }
  EXPECT_EQ(folder.files(), 0) << "a failed start leaves no folder";
}

TEST(Messages, OfOtherCommandsNameTheirFlags) {
  const std::vector<std::vector<std::string>> uses = {
      {"bench", "--batch", "0"},      {"bench", "--threads", "-1"},   {"bench", "--rounds", "0"},
      {"bench", "--drop-path", "2"},  {"bench", "--budget", "8"},     {"plan", "--batch", "0"},
      {"plan", "--measure", "never"}, {"trace", "--steps", "0"},      {"verify", "--dropout", "2"},
      {"demo", "--batch", "0"},       {"predict", "--top", "0", "a"}, {"eval", "--batch", "0"}};
  for (const auto& use : uses) {
    const auto run = run_program(use);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find(use[1] + ": "), std::string::npos) << run.err;
    expect_flags_of(use[0], run);
  }
}

TEST(Json, ErrorsNameLineAndColumn) {
  const ScratchFolder folder;
  std::ofstream(folder / "c.json") << "{\n  \"batch\": 4,\n  \"steps\" 5\n}\n";
  for (const auto& use : {std::vector<std::string>{"train", "--config", folder / "c.json"},
                          std::vector<std::string>{"bench", "--sweep", folder / "c.json"}}) {
    const auto run = run_program(use);
    EXPECT_EQ(run.code, 2);
    EXPECT_NE(run.err.find("c.json: line 3, column 1"), std::string::npos) << run.err;
    EXPECT_EQ(lines(run.err), 1);
  }
}

TEST(Json, WrongValuesOfAConfigurationNameThePlace) {
  const ScratchFolder folder;
  const std::pair<const char*, const char*> wrong[] = {
      {R"("learnin_rate": 1)", "unknown key 'learnin_rate'; the nearest is 'learning_rate'"},
      {R"("batch": "many")", "batch: expected a whole number"},
      {R"("learning_rate": -1)", "learning_rate: expected more than 0"},
      {R"("decay": "fast")", "decay: "}};
  for (const auto& [line, why] : wrong) {
    std::ofstream(folder / "c.json") << "{\n  \"steps\": 3,\n  " << line << "\n}\n";
    const auto run = run_program({"train", "--config", folder / "c.json", "--dry-run"});
    EXPECT_EQ(run.code, 2);
    EXPECT_NE(run.err.find(std::string("c.json: line 3, column 3: ") + why), std::string::npos)
        << run.err;
  }
  std::ofstream(folder / "c.json") << "{\"learning_rate\": -1}";
  const auto flag =
      run_program({"train", "--config", folder / "c.json", "--lr", "-2", "--dry-run"});
  EXPECT_EQ(flag.err.rfind("pareprop: --learning-rate: ", 0), 0u) << "the flag is the culprit";
  const auto fixed = run_program(
      {"train", "--config", folder / "c.json", "--lr", "2", "--dry-run", "--model", "vit_digits"});
  EXPECT_EQ(fixed.code, 0) << fixed.err;
}

TEST(Json, PipesAndDevicesAreNoResults) {
  const ScratchFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto run = run_program({"report", folder / "fifo", "--out", folder / "a.html"});
  EXPECT_NE(run.code, 0);
  EXPECT_NE(run.err.find("expected a regular file"), std::string::npos) << run.err;
}

TEST(Json, PipesAndDevicesAreNoConfiguration) {
  const ScratchFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& file : {folder / "fifo", std::string("/dev/zero")}) {
    for (const char* command : {"train", "bench"}) {
      const auto run =
          run_program({command, std::string(command) == "train" ? "--config" : "--sweep", file});
      EXPECT_NE(run.code, 0);
      EXPECT_NE(run.err.find("expected a regular file"), std::string::npos) << run.err;
    }
  }
}

TEST(Numbers, ThatNobodyMeansAreRefusedAtOnce) {
  const std::vector<std::vector<std::string>> uses = {
      {"--threads", "100000"}, {"--batch", "1000000000000000000"}, {"--batch", "1e18"}};
  for (const char* command : {"verify", "bench", "trace", "plan", "demo", "train"}) {
    for (const auto& use : uses) {
      const auto begin = std::chrono::steady_clock::now();
      const auto run = run_program(joined({command}, use));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
      EXPECT_EQ(run.code, 2) << run.err;
      EXPECT_NE(run.err.find(use[0]), std::string::npos) << run.err;
      if (use[1] != "1e18") {
        EXPECT_NE(run.err.find(std::string(command) == "demo" && use[0] == "--batch" ? "at most"
                               : use[0] == "--threads"                               ? "1024"
                                                                                     : "1048576"),
                  std::string::npos)
            << run.err;
      }
    }
  }
  for (const auto& use : {std::vector<std::string>{"train", "--epochs", "1e300"},
                          std::vector<std::string>{"train", "--nproc", "100000"},
                          std::vector<std::string>{"train", "--workers", "100000"},
                          std::vector<std::string>{"train", "--accumulate", "1000000000000"}}) {
    EXPECT_EQ(run_program(use).code, 2) << use[1];
  }
}

TEST(Numbers, SizesBeyondAnyNetworkNameTheFlag) {
  const ScratchFolder folder;
  for (const char* command : {"verify", "bench", "trace", "plan", "train"}) {
    for (const char* flag : {"--depth", "--width", "--image-size"}) {
      std::vector<std::string> words = {command, flag, "1000000000"};
      if (words[0] != "verify" && words[0] != "plan")
        words.insert(words.end(), {"--out", folder / "out"});
      const auto run = run_program(words);
      EXPECT_EQ(run.code, 2) << run.err;
      EXPECT_EQ(run.err.rfind(std::string("pareprop: ") + flag + ": expected at most ", 0), 0u)
          << command << ": " << run.err;
    }
  }
  EXPECT_EQ(run_program({"bench", "--model", "vit_huger", "--out", folder / "out"}).code, 2);
  EXPECT_EQ(folder.files(), 0) << "a failed start leaves nothing";
}

TEST(Resume, NeedsNoOtherFlag) {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  const auto first = run_program({"train", "--model", "vit_digits", "--depth", "1", "--batch", "8",
                                  "--lr", "0.01", "--steps", "2", "--seed", "3", "--out", out});
  ASSERT_EQ(first.code, 0) << first.err;
  const auto more = run_program({"train", "--resume", "auto", "--out", out, "--steps", "3",
                                 "--json", folder / "result.json"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_NE(more.err.find("from step 2 to 3"), std::string::npos) << more.err;
  const json config = json::parse(content(out + "/config.json"));
  EXPECT_EQ(config["model"], "vit_digits");
  EXPECT_EQ(config["depth"], json::array({1}));
  EXPECT_EQ(config["batch"], 8);
  EXPECT_EQ(config["learning_rate"], 0.01);
  EXPECT_EQ(config["seed"], 3);
  const auto bare = run_program({"train", "--resume", "auto", "--out", out, "--dry-run"});
  ASSERT_EQ(bare.code, 0) << bare.err;
  json expected = config, got = json::parse(bare.out);
  expected.erase("resume");
  got.erase("resume");
  EXPECT_EQ(got, expected);
  EXPECT_EQ(json::parse(content(folder / "result.json"))["step"], 3);
  const auto wrong = run_program(
      {"train", "--resume", "auto", "--out", out, "--steps", "4", "--model", "vit_tiny"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.err.find("--model vit_digits"), std::string::npos) << wrong.err;
}

TEST(Completion, HasTheValuesThatFlagsTake) {
  const std::string script = run_program({"completion", "bash"}).out;
  for (const char* values :
       {"--shard) words=\"none state gradients\"", "--device) words=\"auto cpu cuda\"",
        "--update) words=\"after inside\"", "--mode|--modes) words=\"stored checkpoint reprop "}) {
    EXPECT_NE(script.find(values), std::string::npos) << values;
  }
}

TEST(Completion, IsWrittenAsJsonToo) {
  const auto plain = run_program({"completion", "bash"});
  const auto run = run_program({"completion", "bash", "--json", "-"});
  expect_success(run);
  EXPECT_EQ(json::parse(run.out)["script"], plain.out);
}

TEST(Presets, AreListedWithTheirBatchSizes) {
  const auto table = run_program({"train", "--preset", "list"});
  expect_success(table);
  EXPECT_NE(table.out.find("rev-swin-tiny   swin_tiny         1024"), std::string::npos)
      << table.out;
  const auto rows =
      json::parse(run_program({"train", "--preset", "list", "--json", "-"}).out).at("rows");
  ASSERT_GE(rows.size(), 7U);
  for (const json& row : rows) EXPECT_GE(row["batch"], 1);
  EXPECT_NE(run_program({"train", "--help"}).out.find("'list'"), std::string::npos);
}

}  // namespace
}  // namespace pareprop::cli
