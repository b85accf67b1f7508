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
  StepTimesFile file_{folder_ / "times", "vit_tiny, batch 4"};
  StepTimes times_{.stacks = {{0.25, 0.5, 0.625, {0.5, 0.75, 0.875}}, {}}, .rest = 1.5};
};

TEST_F(StepTimesFileTest, ReadsWhatWasWritten) {
  EXPECT_FALSE(file_.read().times);
  EXPECT_EQ(file_.read().why_not, "");
  file_.write(times_);
  ASSERT_TRUE(file_.read().times);
  EXPECT_EQ(*file_.read().times, times_);
  EXPECT_FALSE(StepTimesFile(folder_ / "times", "vit_tiny, batch 8").read().times);
}

TEST_F(StepTimesFileTest, AnotherMachinesTimesDoNotCount) {
  file_.write(times_);
  std::string other = text();
  other.replace(other.find(this_machine()), this_machine().size(), "an abacus");
  rewrite(other);
  EXPECT_FALSE(file_.read().times);
  EXPECT_NE(file_.read().why_not.find("measured on another machine (an abacus)"),
            std::string::npos);
}

TEST_F(StepTimesFileTest, DamageIsSaidAndMeasuredOver) {
  file_.write(times_);
  const std::string whole = text();
  for (const std::string& bad :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{}"),
        std::string(R"({"version":3})"), std::string(R"({"version":"1"})"), [&] {
          std::string negative = whole;
          return negative.replace(negative.find("0.25"), 4, "-1.0");
        }()}) {
    rewrite(bad);
    EXPECT_FALSE(file_.read().times) << bad;
    EXPECT_NE(file_.read().why_not, "") << bad;
  }
  file_.write(times_);
  EXPECT_TRUE(file_.read().times);
}

}  // namespace
}  // namespace pareprop::plan
