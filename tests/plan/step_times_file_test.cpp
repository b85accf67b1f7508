#include "pareprop/plan/step_times_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace pareprop::plan {
namespace {

namespace fs = std::filesystem;

class StepTimesFileTest : public ::testing::Test {
 protected:
  StepTimesFileTest() { fs::remove_all(folder_); }
  ~StepTimesFileTest() override { fs::remove_all(folder_); }

  fs::path only_file() const { return fs::directory_iterator(folder_ / "times")->path(); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(only_file()).rdbuf();
    return all.str();
  }
  void rewrite(const std::string& text) const { std::ofstream(only_file()) << text; }

  fs::path folder_ = fs::path(::testing::TempDir()) / "step-times-file-test";
  StepTimesFile file_{folder_ / "times", "vit_tiny, fp32"};
  SizeTimes times_{
      {{.samples = 8}, {.stacks = {{0.25, 0.5, 0.625, {0.5, 0.75, 0.875}}, {}}, .rest = 1.5}},
      {{.samples = 4, .adds = true}, {.stacks = {{0.125, 0.5, 0.0}, {}}, .rest = 1.0}},
      {{.samples = 4}, {.stacks = {{0.125, 0.375, 0.0}, {}}, .rest = 1.0}}};
};

TEST_F(StepTimesFileTest, ReadsWhatWasWritten) {
  EXPECT_TRUE(file_.read().times.empty());
  EXPECT_EQ(file_.read().why_not, "");
  file_.write(times_);
  EXPECT_EQ(file_.read().times.size(), 3U);
  EXPECT_EQ(file_.read().times, times_);
  EXPECT_TRUE(StepTimesFile(folder_ / "times", "vit_tiny, bf16").read().times.empty());
}

TEST_F(StepTimesFileTest, AnotherMachinesTimesDoNotCount) {
  file_.write(times_);
  std::string other = text();
  other.replace(other.find(this_machine()), this_machine().size(), "an abacus");
  rewrite(other);
  EXPECT_TRUE(file_.read().times.empty());
  EXPECT_NE(file_.read().why_not.find("measured on another machine (an abacus)"),
            std::string::npos);
}

TEST_F(StepTimesFileTest, DamageIsSaidAndMeasuredOver) {
  file_.write(times_);
  const std::string whole = text();
  for (const std::string& bad :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{}"),
        std::string(R"({"version":4})"), std::string(R"({"version":"1"})"),
        std::string(R"({"version":3,"machine":"any","key":"vit_tiny, fp32","rest":1,"stacks":[]})"),
        [&] {
          std::string negative = whole;
          return negative.replace(negative.find("0.25"), 4, "-1.0");
        }()}) {
    rewrite(bad);
    EXPECT_TRUE(file_.read().times.empty()) << bad;
    EXPECT_NE(file_.read().why_not, "") << bad;
  }
  file_.write(times_);
  EXPECT_FALSE(file_.read().times.empty());
}

}  // namespace
}  // namespace pareprop::plan
