#include "cli/output_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using testing::content;
using testing::ScratchFolder;

TEST(OutputFile, IsWrittenWholeAndLeavesNothingElse) {
  const ScratchFolder folder;
  write_file(folder / "a.json", "old");
  write_file(folder / "a.json", "new");
  EXPECT_EQ(content(folder / "a.json"), "new");
  EXPECT_EQ(folder.files(), 1);
}

TEST(OutputFile, WhatAKilledProcessLeftIsRemoved) {
  const ScratchFolder folder;
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  std::ofstream(folder / ("a.json.partial-" + std::to_string(dead))) << "x";
  write_file(folder / "a.json", "new");
  EXPECT_EQ(folder.files(), 1);
}

TEST(OutputFile, CheckLeavesWhatWasThere) {
  const ScratchFolder folder;
  write_file(folder / "a.json", "old");
  check_writable(folder / "a.json");
  check_writable(folder / "b.json");
  EXPECT_EQ(content(folder / "a.json"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(OutputFile, FollowsALink) {
  const ScratchFolder folder;
  write_file(folder / "a.json", "old");
  std::filesystem::create_symlink(folder / "a.json", folder / "link.json");
  write_file(folder / "link.json", "new");
  EXPECT_EQ(content(folder / "a.json"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.json"));
}

TEST(OutputFile, DoesNotReplaceADevice) {
  write_file("/dev/null", "text");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(OutputFile, SaysWhyItCannotBeWritten) {
  const ScratchFolder folder;
  EXPECT_THROW(check_writable(folder / "missing/a.json"), std::runtime_error);
  EXPECT_THROW(write_file(folder / "missing/a.json", ""), std::runtime_error);
  std::filesystem::create_directory(folder / "sub");
  EXPECT_THROW(check_writable(folder / "sub"), std::runtime_error);
  EXPECT_EQ(folder.files(), 1);
}

TEST(JsonOutput, WritesNumbersThatAreNotFiniteAsNull) {
  std::ostringstream out;
  JsonOutput("-", out).write({{"a", std::numeric_limits<double>::infinity()},
                              {"b", std::numeric_limits<double>::quiet_NaN()},
                              {"c", "not UTF-8: \xff"}});
  const auto read = nlohmann::json::parse(out.str());
  EXPECT_TRUE(read["a"].is_null());
  EXPECT_TRUE(read["b"].is_null());
}

TEST(JsonOutput, WithoutTargetWritesNothing) {
  std::ostringstream out;
  const JsonOutput json("", out);
  json.write({{"a", 1}});
  EXPECT_FALSE(json.takes_stdout());
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace pareprop::cli
