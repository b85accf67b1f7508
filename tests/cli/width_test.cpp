#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/progress.h"
#include "cli/table.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using nlohmann::json;
using testing::content;
using testing::run_program;
using testing::ScratchFolder;

// Columns of the widest line; `except`: lines that begin so hold a name of the user's or a command.
std::size_t widest(const std::string& text, const std::string& except = "\n") {
  std::size_t width = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(except, 0) == 0) continue;
    width =
        std::max(width, static_cast<std::size_t>(std::count_if(
                            line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; })));
  }
  return width;
}

void expect_fits(const std::vector<std::string>& words, const std::string& except = "\n") {
  const auto run = run_program(words);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_LE(widest(run.out, except), 80U) << words[0] << "\n" << run.out;
  EXPECT_FALSE(run.out.empty());
}

TEST(Width, EveryCommandFits80Columns) {
  const ScratchFolder folder;
  expect_fits({"models"});
  expect_fits({"models", "--plain"});
  expect_fits(
      {"plan", "--model", "roberta_large", "--depth", "100", "--batch", "4", "--budget", "64GiB"},
      "  pareprop train ");
  expect_fits({"plan", "--model", "mvit_v1_base", "--batch", "64", "--budget", "4GiB"},
              "  pareprop train ");
  expect_fits({"train", "--preset", "list"});
  const std::vector<std::string> small = {"--model", "mvit_cifar", "--batch",
                                          "1",       "--threads",  "1"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), small.begin(), small.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_fits(with({"verify"}, {}));
  expect_fits(with({"bench"}, {"--rounds", "1", "--steps", "1", "--budget", "200MiB", "--out",
                               folder / "a.jsonl"}));
  expect_fits({"report", folder / "a.jsonl", "--out", folder / "a.html"}, "wrote ");
  expect_fits(with({"trace"}, {"--out", folder / "t.json", "--steps", "1"}), "wrote ");
  expect_fits(with({"trace"}, {"--plain", "--out", folder / "t.json", "--steps", "1"}), "wrote ");
  expect_fits({"demo", "--threads", "1", "--steps", "1", "--batch", "4"});
  expect_fits({"doctor", "--quick", "--model", "mvit_cifar", "--batch", "1", "--out",
               folder / "found.json"},
              "in ");
}

TEST(Width, OfARunFits80ColumnsToo) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "books");
  std::ofstream book(folder / "books/tale.txt");
  for (int day = 0; day < 1000; ++day) {
    book << "On day " << day << " Anne walked " << day * 7 % 13 << " miles, and saw the sea.\n";
  }
  book.close();
  const std::string run = folder / "run";
  const std::vector<std::string> train = {
      "train",   "--model",   "roberta_base", "--data",    "text:" + folder / "books",
      "--depth", "1",         "--width",      "48",        "--vocabulary",
      "300",     "--seq-len", "64",           "--batch",   "2",
      "--steps", "1",         "--budget",     "1024.5MiB", "--out",
      run};
  expect_fits(train, "files in ");
  expect_fits({"train", "--resume", "auto", "--out", run}, "already finished: ");
  expect_fits({"eval", "--run", run});
  expect_fits(
      {"predict", "--run", run,
       "Twice upon a time Anne walked to the <mask> and all of her friends came with her."});
}

TEST(Width, HelpOfEveryCommandFits) {
  for (const char* command : {"models", "plan", "train", "eval", "predict", "verify", "bench",
                              "report", "trace", "demo", "doctor", "completion"}) {
    expect_fits({command, "--help"}, "Usage: ");
  }
  expect_fits({"--help"});
}

TEST(Width, LongCellsLoseTheirMiddle) {
  Table table({{"input", Align::left, 10}, {"p"}});
  table.add_row({"/a/long/name/of/an/image.png", "1"});
  EXPECT_EQ(table.text(), "input       p\n----------  -\n/a/....png  1\n");
}

TEST(Width, TheProgressLineShowsTheFirstPartsThatFit) {
  EXPECT_EQ(fitting({"1:00 left", "step 1/2", "loss 1"}, 80), "1:00 left  step 1/2  loss 1");
  EXPECT_EQ(fitting({"1:00 left", "step 1/2", "loss 1"}, 26), "1:00 left  step 1/2");
  EXPECT_EQ(fitting({"1:00 left", "step 1/2", "loss 1"}, 27), "1:00 left  step 1/2  loss 1");
}

TEST(Models, FitWithTheStateOfTheOptimizer) {
  const json rows = json::parse(run_program({"models", "--json", "-"}).out).at("rows");
  double most = 0.0;  // what fits
  for (const json& row : rows) {
    if (row["fits"]) most = std::max(most, row["train_bytes"].get<double>());
  }
  for (const json& row : rows) {
    EXPECT_EQ(row["fits"].get<bool>(), row["train_bytes"].get<double>() <= most) << row["model"];
  }
}

TEST(Json, EveryCommandWritesIt) {
  for (const char* command : {"models", "plan", "train", "eval", "predict", "verify", "bench",
                              "report", "trace", "demo", "doctor"}) {
    EXPECT_NE(run_program({command, "--help"}).out.find("--json"), std::string::npos) << command;
  }
  const ScratchFolder folder;
  ASSERT_EQ(run_program({"bench", "--model", "vit_digits", "--depth", "1", "--modes", "stored",
                         "--rounds", "1", "--steps", "1", "--out", folder / "a.jsonl"})
                .code,
            0);
  const auto report =
      run_program({"report", folder / "a.jsonl", "--out", folder / "a.html", "--json", "-"});
  EXPECT_EQ(json::parse(report.out)["rows"], 1);
}

}  // namespace
}  // namespace pareprop::cli
