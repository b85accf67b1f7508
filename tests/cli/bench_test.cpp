#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using nlohmann::json;
using testing::content;
using testing::expect_success;
using testing::lines;
using testing::run_program;
using testing::ScratchFolder;

std::vector<std::string> bench(const std::vector<std::string>& more) {
  std::vector<std::string> all{"bench",    "--model", "vit_digits", "--modes", "stored,reprop",
                               "--rounds", "1",       "--steps",    "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(BenchSweep, CrossesListsAndGoesOnWhereItStopped) {
  const ScratchFolder folder;
  const auto arguments =
      bench({"--depth", "1,2", "--batch", "1,2", "--out", folder / "a.jsonl", "--json", "-"});
  const auto first = run_program(arguments);
  expect_success(first);
  const json rows = json::parse(first.out).at("rows");
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows[7]["depth"], 2);
  EXPECT_EQ(rows[7]["batch"], 2);
  EXPECT_EQ(rows[7]["mode"], "reprop");
  EXPECT_EQ(rows[7]["family"], "vit");
  EXPECT_EQ(rows[7]["verified_batch"], 2);

  std::istringstream file(content(folder / "a.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const json header = json::parse(line);
  EXPECT_EQ(header["pareprop"], "bench");
  EXPECT_EQ(header["version"], 1);
  for (const char* key : {"cpu", "threads", "torch", "date"}) EXPECT_TRUE(header.contains(key));
  for (const json& row : rows) {
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_EQ(json::parse(line), row);
  }

  const std::string whole = content(folder / "a.jsonl");
  const auto second = run_program(arguments);
  expect_success(second);
  EXPECT_EQ(json::parse(second.out), json::parse(first.out));
  EXPECT_EQ(content(folder / "a.jsonl"), whole);
}

TEST(BenchSweep, OfAFileAndItsPage) {
  const ScratchFolder folder;
  put(folder / "sweep.json", R"({"rounds": 1, "steps": 1, "rows": [
      {"models": ["vit_digits"], "depths": [1], "batches": [1, 2], "modes": ["reprop", "pareprop"]},
      {"models": ["vit_digits"], "depths": [1], "batches": [2], "modes": ["stored"]}]})");
  const auto run =
      run_program({"bench", "--sweep", folder / "sweep.json", "--out", folder / "a.jsonl"});
  expect_success(run);
  EXPECT_NE(run.out.find("vit_digits, depth 1, batch 2, fp32"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\nstored "), std::string::npos);
  EXPECT_EQ(lines(content(folder / "a.jsonl")), 6);

  const auto page = run_program({"report", folder / "a.jsonl", "--out", folder / "a.html"});
  expect_success(page);
  EXPECT_NE(page.out.find("5 rows"), std::string::npos) << page.out;
  const std::string html = content(folder / "a.html");
  EXPECT_NE(html.find("id=\"batch-vit-digits-depth-1-fp32"), std::string::npos);
  EXPECT_NE(html.find("id=\"gain-vit\""), std::string::npos);
  EXPECT_EQ(folder.files(), 3);
}

TEST(BenchSweep, BudgetsAreRows) {
  const auto run = run_program(bench({"--budget", "100MiB,1KiB", "--json", "-"}));
  expect_success(run);
  const json rows = json::parse(run.out).at("rows");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2]["mode"], "auto");
  EXPECT_EQ(rows[2]["budget_bytes"], 100 << 20);
  EXPECT_LE(rows[2]["peak_bytes"], 100 << 20);
  EXPECT_EQ(rows[2]["smallest_budget_bytes"], 0);
  EXPECT_EQ(rows[3]["fits"], false);
  const std::int64_t least = rows[3]["smallest_budget_bytes"];
  EXPECT_GT(least, 1024);
  const auto people = run_program(bench({"--budget", std::to_string(least) + "B,1KiB"}));
  expect_success(people);
  EXPECT_NE(people.out.find("auto 1.0 KiB: the smallest budget for this batch is"),
            std::string::npos)
      << people.out;
  EXPECT_EQ(people.out.find("too large"), people.out.rfind("too large")) << people.out;
}

// Nothing is written, and one line says why.
void expect_refused(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& says) {
  const auto run = run_program(arguments);
  EXPECT_NE(run.code, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(lines(run.err), 1) << run.err;
  for (const std::string& words : says) {
    EXPECT_NE(run.err.find(words), std::string::npos) << "'" << words << "' in: " << run.err;
  }
}

TEST(BenchSweep, RefusesWhatCannotBe) {
  const ScratchFolder folder;
  expect_refused({"bench", "--batch", "4,0"}, {"batch", "1 or more", "got 0"});
  expect_refused({"bench", "--model", "vit_tiny,vit_huger"}, {"vit_huger", "vit_huge,"});
  expect_refused({"bench", "--depth", "4,x"}, {"--depth", "2+2+6+2", "'x'"});
  expect_refused({"bench", "--precision", "fp32,fp16"}, {"--precision", "fp16"});
  expect_refused({"bench", "--modes", "stored,fast"}, {"--modes", "'fast'"});
  expect_refused({"bench", "--budget", "200"}, {"--budget", "unit is missing"});
  expect_refused({"bench", "--threads", "-1"}, {"threads", "0 or more"});
  expect_refused({"bench", "--rounds", "0"}, {"rounds", "1 or more"});
  expect_refused({"bench", "--sweep", folder / "none.json"}, {"none.json", "No such file"});
  put(folder / "s.json", R"({"rows": [{"batchs": [1]}]})");
  expect_refused({"bench", "--sweep", folder / "s.json"}, {"'batchs'", "batches"});
  expect_refused({"bench", "--sweep", folder / "s.json", "--batch", "2"}, {"--batch", "--sweep"});
  expect_refused({"bench", "--out", "/no/such/folder/a.jsonl"}, {"/no/such/folder/a.jsonl"});
  put(folder / "notes.txt", "my notes\n");
  expect_refused(bench({"--out", folder / "notes.txt"}), {"not a file of results"});
  EXPECT_EQ(content(folder / "notes.txt"), "my notes\n");
}

TEST(Report, RefusesWhatItCannotShow) {
  const ScratchFolder folder;
  put(folder / "empty", "");
  put(folder / "other", "{\"pareprop\":\"bench\",\"version\":7}\n");
  expect_refused({"report"}, {"results"});
  expect_refused({"report", folder / "none"}, {"none", "No such file"});
  expect_refused({"report", folder / "empty", "--out", folder / "a.html"}, {"holds no results"});
  expect_refused({"report", folder / "other", "--out", folder / "a.html"}, {"version 7"});
  EXPECT_EQ(folder.files(), 2);
}

}  // namespace
}  // namespace pareprop::cli
