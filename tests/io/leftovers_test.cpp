#include "pareprop/io/leftovers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "pareprop/io/atomic_file.h"
#include "tests/io/limited_child.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;
using testing::AtLimit;
using testing::put;
using testing::run_limited;
using testing::TemporaryFolder;

// The number of a process that is gone.
std::string dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return std::to_string(child);
}

TEST(Leftovers, OfDeadProcessesAreRemoved) {
  const TemporaryFolder folder;
  const std::string dead = dead_process();
  put(folder / ("a.json.partial-" + dead + "-0"), "x");
  put(folder / ("a.json.partial-" + dead), "x");
  remove_leftovers_of(folder / "a.json");
  EXPECT_EQ(folder.files(), 0);
  remove_leftovers_of(folder / "no such folder/a");
}

TEST(Leftovers, OfLivingProcessesAndOtherFilesStay) {
  const TemporaryFolder folder;
  const std::string dead = dead_process();
  put(folder / ("a.partial-" + std::to_string(getppid()) + "-0"), "x");
  put(folder / ("a.partial-" + std::to_string(getpid())), "x");
  for (const std::string& name :
       {"a.partial-" + dead + "-", "a.partial-" + dead + "x", "a.partial-" + dead + "-1.txt",
        std::string("a.partial-"), std::string("a.partial-x"), std::string("a.partial--1"),
        "a.part-" + dead, "b.partial-" + dead + "-0", "ab.partial-" + dead, std::string("a")}) {
    put(folder / name, "x");
  }
  fs::create_directory(folder / ("a.partial-" + dead));
  put(folder / "target", "x");
  fs::create_symlink("target", folder / ("a.partial-" + dead + "-2"));
  const int before = folder.files();
  remove_leftovers_of(folder / "a");
  EXPECT_EQ(folder.files(), before);
}

// A process of another machine that shares the folder has a number that nobody has here.
TEST(Leftovers, AFileThatIsLockedIsBeingWritten) {
  const TemporaryFolder folder;
  const fs::path name = folder / ("a.partial-" + dead_process() + "-0");
  put(name, "x");
  const FileDescriptor file(open(name.c_str(), O_WRONLY));
  ASSERT_EQ(flock(file.get(), LOCK_EX), 0);
  remove_leftovers_of(folder / "a");
  EXPECT_EQ(folder.files(), 1);
  ASSERT_EQ(flock(file.get(), LOCK_UN), 0);
  remove_leftovers_of(folder / "a");
  EXPECT_EQ(folder.files(), 0);
}

TEST(Leftovers, WhatThisProcessWritesStays) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.write("text");
  remove_leftovers_of(folder / "a");
  EXPECT_EQ(folder.files(), 1);
  file.commit();
  EXPECT_EQ(testing::content(folder / "a"), "text");
}

TEST(Leftovers, AreGoneWhenTheFileIsWrittenAgain) {
  const TemporaryFolder folder;
  for (const std::string& name : {std::string("a"), std::string(255, 'n')}) {
    const auto killed =
        run_limited(5, AtLimit::killed, [&] { write_file(folder / name, std::string(100, 'x')); });
    EXPECT_TRUE(killed.killed);
    const fs::path other = folder / ("b.partial-" + dead_process() + "-0");
    put(other, "of another file");
    EXPECT_EQ(folder.files(), 2);
    write_file(folder / name, "new");
    EXPECT_EQ(folder.files(), 2);
    EXPECT_EQ(testing::content(folder / name), "new");
    fs::remove(folder / name);
    fs::remove(other);
    EXPECT_EQ(folder.files(), 0);
  }
}

}  // namespace
}  // namespace pareprop::io
