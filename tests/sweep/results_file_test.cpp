#include "pareprop/sweep/results_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "tests/io/temporary_folder.h"

namespace pareprop::sweep {
namespace {

namespace fs = std::filesystem;
using io::testing::content;
using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;

const Machine kHere{.cpu = "A fast one", .threads = 2, .torch = "2.13.0"};

ResultRow row_of(const std::string& name, const std::string& mode, double ms = 10.0) {
  ResultRow row{.case_name = name, .model = "vit_tiny", .family = "vit", .mode = mode};
  row.step_ms = ms;
  row.peak_bytes = std::int64_t{3} << 32;
  return row;
}

std::string refusal(const std::function<void()>& act) {
  return message_of<std::invalid_argument>(act);
}

class ResultsFileTest : public ::testing::Test {
 protected:
  // Whoever opens it is refused for this reason, and what is there stays as it is.
  void expect_refused(const std::string& text, const std::string& says) const {
    put(path_, text);
    for (const auto& act : std::vector<std::function<void()>>{
             [&] { read_results(path_); }, [&] { ResultsFile file(path_, kHere); }}) {
      const std::string why = refusal(act);
      EXPECT_NE(why.find(says), std::string::npos) << "'" << says << "' in: " << why;
      EXPECT_NE(why.find(path_.string()), std::string::npos) << why;
    }
    EXPECT_EQ(content(path_), text);
  }

  std::string begun() const {
    fs::remove(path_);
    ResultsFile(path_, kHere).append({row_of("a", "stored"), row_of("a", "reprop")});
    return content(path_);
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "results.jsonl";
};

TEST_F(ResultsFileTest, WhatIsAppendedIsReadAgain) {
  begun();
  {
    ResultsFile file(path_, kHere);
    ASSERT_EQ(file.rows().size(), 2U);
    file.append({row_of("b", "stored", 7.0)});
    EXPECT_EQ(file.rows().size(), 3U);
  }
  const Results results = read_results(path_);
  EXPECT_EQ(results.machine, kHere);
  EXPECT_FALSE(results.torn);
  EXPECT_EQ(results.date.size(), 20U);
  ASSERT_EQ(results.rows.size(), 3U);
  EXPECT_EQ(results.rows[1].mode, "reprop");
  EXPECT_EQ(results.rows[2].step_ms, 7.0);
  EXPECT_EQ(results.rows[2].peak_bytes, std::int64_t{3} << 32);
}

TEST_F(ResultsFileTest, ATornLastLineIsCutOffWhereverItWasTorn) {
  const std::string whole = begun();
  const std::size_t header = whole.find('\n') + 1, first = whole.find('\n', header) + 1;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    put(path_, whole.substr(0, size));
    {
      ResultsFile file(path_, kHere);
      EXPECT_EQ(file.rows().size(), size < first ? 0U : size < whole.size() ? 1U : 2U) << size;
      file.append({row_of("c", "stored")});
    }
    const Results results = read_results(path_);
    EXPECT_EQ(results.rows.back().case_name, "c") << size;
    EXPECT_FALSE(results.torn);
  }
}

TEST_F(ResultsFileTest, ATornLineIsNotReadButSaid) {
  const std::string whole = begun();
  put(path_, whole.substr(0, whole.size() - 5));
  const Results results = read_results(path_);
  EXPECT_EQ(results.rows.size(), 1U);
  EXPECT_TRUE(results.torn);
}

TEST_F(ResultsFileTest, RefusesWhatIsNotOurs) {
  expect_refused("step,ms\n1,2\n", "is not a file of results");
  expect_refused("notes without an end", "is not a file of results");
  expect_refused("{\"rows\": []}\n", "is not a file of results");
  expect_refused("[1]\n", "is not a file of results");
  expect_refused("{\"pareprop\":\"train\",\"version\":1}\n", "is not a file of results");
  expect_refused(std::string("\0\xff\xfe\n", 4), "is not a file of results");
  expect_refused("{\"pareprop\":\"bench\",\"version\":2}\n", "version 2, expected 1");
  expect_refused("{\"pareprop\":\"bench\"}\n", "version null, expected 1");
  expect_refused("{\"pareprop\":\"bench\",\"version\":1}\n",
                 "incomplete first line: expected cpu, threads, torch and date");
}

TEST_F(ResultsFileTest, NamesADamagedLine) {
  const std::string whole = begun();
  const std::size_t header = whole.find('\n') + 1;
  expect_refused(whole.substr(0, header) + "nonsense\n" + whole.substr(header), "line 2");
  expect_refused(whole + "{}\n", "line 4: the key 'case' is missing");
  std::string other = whole;
  other.replace(other.find("\"batch\":0"), 9, "\"batch\":\"\"");
  expect_refused(other, "line 2: 'batch'");
}

TEST_F(ResultsFileTest, ResultsOfAnotherMachineAreNotMixed) {
  const std::string whole = begun();
  for (Machine other :
       {Machine{"A slow one", 2, "2.13.0"}, Machine{"A fast one", 4, "2.13.0"},
        Machine{"A fast one", 2, "2.12.0"}, Machine{"A fast one", 2, "2.13.0", "An accelerator"}}) {
    const std::string why = refusal([&] { ResultsFile file(path_, other); });
    EXPECT_NE(why.find("another machine (A fast one, 2 threads, torch 2.13.0"), std::string::npos)
        << why;
    EXPECT_NE(why.find("--out"), std::string::npos) << why;
  }
  EXPECT_EQ(content(path_), whole);
}

TEST_F(ResultsFileTest, OnlyOneProcessWrites) {
  const ResultsFile first(path_, kHere);
  EXPECT_NE(refusal([&] { ResultsFile second(path_, kHere); }).find("another process"),
            std::string::npos);
}

TEST_F(ResultsFileTest, NothingToReadAndNowhereToWrite) {
  EXPECT_THROW(read_results(folder_.path() / "none"), std::runtime_error);
  put(path_, "");
  EXPECT_NE(refusal([&] { read_results(path_); }).find("holds no results"), std::string::npos);
  EXPECT_NE(refusal([&] { read_results(folder_.path()); }).find("folder"), std::string::npos);
  EXPECT_NE(refusal([&] { ResultsFile file(folder_.path(), kHere); }).find("folder"),
            std::string::npos);
  EXPECT_THROW(ResultsFile(folder_.path() / "no" / "a.jsonl", kHere), std::system_error);
}

TEST(ResultRow, EveryFieldSurvives) {
  ResultRow row = row_of("a \"quoted\" case", "auto", 12.5);
  row.budget_bytes = 77;
  row.plain = true;
  row.fits = false;
  row.error = "two\nlines";
  row.depth = 7;
  row.overlap_ms = 0.25;
  const ResultRow back = parse_row(to_json(row));
  EXPECT_EQ(to_json(back), to_json(row));
  EXPECT_TRUE(back.same_as(row));
  EXPECT_EQ(back.error, row.error);
  EXPECT_EQ(to_json(row).find('\n'), std::string::npos);
  row.loss = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(parse_row(to_json(row)).loss));
}

TEST(ResultRow, TheLatestCounts) {
  ResultRow budget = row_of("a", "auto", 5.0);
  budget.budget_bytes = 1;
  const auto rows = latest(
      {row_of("a", "auto", 1.0), row_of("b", "auto", 2.0), budget, row_of("a", "auto", 3.0)});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].step_ms, 3.0);
  EXPECT_EQ(rows[1].step_ms, 2.0);
  EXPECT_EQ(rows[2].step_ms, 5.0);
}

}  // namespace
}  // namespace pareprop::sweep
