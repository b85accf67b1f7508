#include "pareprop/distributed/launcher.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/distributed/worker_process.h"

namespace pareprop::distributed {
namespace {

using std::chrono::seconds;
using testing::Worker;

TEST(Launcher, TakesItsOwnFlagOut) {
  using Arguments = std::vector<std::string>;
  EXPECT_EQ(without_nproc({"train", "--nproc", "4", "--steps", "5"}),
            (Arguments{"train", "--steps", "5"}));
  EXPECT_EQ(without_nproc({"--nproc=4", "train"}), (Arguments{"train"}));
  EXPECT_EQ(without_nproc({"train", "--nproc"}), (Arguments{"train"}));
}

TEST(Launcher, StartsProcessesThatFindEachOther) {
  Worker launcher({"--nproc", "2", "collectives", "30000"});
  EXPECT_EQ(launcher.wait(), 0) << launcher.errors();
}

TEST(Launcher, ReturnsTheFirstFailingCodeAndEndsTheOthers) {
  Worker launcher({"--nproc", "3", "exit", "1", "42"});
  EXPECT_EQ(launcher.wait(seconds(20)), 42) << launcher.errors();
  Worker stubborn({"--nproc", "2", "exit", "0", "9", "ignore SIGTERM"});
  EXPECT_EQ(stubborn.wait(seconds(20)), 9) << stubborn.errors();
  EXPECT_EQ(stubborn.errors(), "rank 0 ended with exit code 9\n");
}

TEST(Launcher, SaysWhichProcessWasKilled) {
  Worker launcher({"--nproc", "2", "lose", "10000", "killed", "1"});
  EXPECT_EQ(launcher.wait(seconds(20)), 128 + SIGKILL);
  EXPECT_NE(launcher.errors().find("rank 1 was ended by signal 9 (Killed)"), std::string::npos)
      << launcher.errors();
}

std::vector<pid_t> wait_for_two(const std::filesystem::path& folder) {
  std::vector<pid_t> pids;
  for (int i = 0; i < 2000 && pids.size() < 2; ++i) {
    pids.clear();
    for (const char* rank : {"0", "1"}) {
      if (!std::filesystem::exists(folder / rank)) continue;
      const std::string text = io::testing::content(folder / rank);
      if (!text.empty()) pids.push_back(std::stoi(text));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(pids.size(), 2U);
  return pids;
}

TEST(Launcher, PassesSignalsOn) {
  const io::testing::TemporaryFolder folder;
  Worker launcher({"--nproc", "2", "signal", folder.path().string()});
  wait_for_two(folder.path());
  launcher.kill(SIGTERM);
  EXPECT_EQ(launcher.wait(seconds(20)), 7) << launcher.errors();
}

TEST(Launcher, LeavesNobodyBehindWhenKilled) {
  const io::testing::TemporaryFolder folder;
  Worker launcher({"--nproc", "2", "signal", folder.path().string()});
  const auto pids = wait_for_two(folder.path());
  launcher.kill(SIGKILL);
  launcher.wait(seconds(20));
  for (const pid_t pid : pids) {
    // Orphans are collected by whoever is the init of this machine; one that was not yet is a
    // zombie, without a program.
    const auto program = std::filesystem::path("/proc") / std::to_string(pid) / "exe";
    std::error_code error;
    for (int i = 0; i < 1000 && std::filesystem::exists(program, error); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_FALSE(std::filesystem::exists(program, error));
  }
}

TEST(Launcher, EndsAlsoWhenAProcessIsStopped) {
  for (const char* victim : {"0", "1"}) {
    Worker launcher({"--nproc", "2", "lose", "2000", "stopped", victim});
    EXPECT_EQ(launcher.wait(seconds(30)), 3) << launcher.errors();
    EXPECT_NE(launcher.errors().find(std::string("rank ") + victim), std::string::npos)
        << launcher.errors();
  }
}

// So that rank 0 can still save.
TEST(Launcher, ContinuesAStoppedProcessThatIsToEnd) {
  const io::testing::TemporaryFolder folder;
  Worker launcher({"--nproc", "2", "stop and fail", folder.path().string()});
  EXPECT_EQ(launcher.wait(seconds(30)), 9) << launcher.errors();
  EXPECT_TRUE(std::filesystem::exists(folder / "ended"));
}

// As Ctrl-Z and fg do, and as whoever stops only the one that is in sight. (Not by SIGTSTP: the
// system drops it where no shell could continue the group, as in continuous integration.)
TEST(Launcher, GoesOnAfterItWasStopped) {
  for (const bool all : {true, false}) {
    const io::testing::TemporaryFolder folder;
    Worker launcher({"--nproc", "2", "work", "20000", folder.path().string()});
    std::vector<pid_t> pids{launcher.pid()};
    if (const auto ranks = wait_for_two(folder.path()); all) {
      pids.insert(pids.end(), ranks.begin(), ranks.end());
    }
    for (const pid_t pid : pids) kill(pid, SIGSTOP);
    for (const pid_t pid : pids) EXPECT_TRUE(testing::wait_until_stopped(pid));
    for (const pid_t pid : pids) kill(pid, SIGCONT);
    std::ofstream(folder / "go") << "go";
    EXPECT_EQ(launcher.wait(seconds(30)), 0) << launcher.errors();
  }
}

TEST(Launcher, ProcessesHaveTheNameOfTheProgram) {
  Worker launcher({"--nproc", "1", "name"});
  EXPECT_EQ(launcher.wait(seconds(20)), 0);
  EXPECT_EQ(launcher.errors(), "train_worker\n");
}

TEST(Launcher, RefusesManyTimesMoreProcessesThanCores) {
  const std::string said =
      io::testing::message_of<std::invalid_argument>([] { launch(100000, {}); });
  EXPECT_NE(said.find("--nproc is 100000, expected at most"), std::string::npos) << said;
}

TEST(Launcher, StartsAtLeastOne) { EXPECT_THROW(launch(0, {}), std::invalid_argument); }

}  // namespace
}  // namespace pareprop::distributed
