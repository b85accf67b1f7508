#include "pareprop/io/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/io/limited_child.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;
using testing::AtLimit;
using testing::content;
using testing::message_of;
using testing::put;
using testing::run_limited;
using testing::TemporaryFolder;

void write_whole(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

mode_t permissions(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST(AtomicFile, AppearsWithCommit) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  AtomicFile file(folder / "a");
  file.write("new ");
  file.write(std::as_bytes(std::span("file", 4)));
  EXPECT_EQ(content(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(content(folder / "a"), "new file");
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, WithoutCommitLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    AtomicFile other(folder / "b");
    file.write("new");
    EXPECT_EQ(folder.files(), 3);
  }
  EXPECT_EQ(content(folder / "a"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, CanBeEmptyAndLarge) {
  const TemporaryFolder folder;
  write_whole(folder / "empty", "");
  EXPECT_EQ(fs::file_size(folder / "empty"), 0U);
  const std::string large(std::size_t{20} << 20, 'x');
  write_whole(folder / "large", large);
  EXPECT_TRUE(content(folder / "large") == large);
}

TEST(AtomicFile, FollowsLinksAlsoToWhatIsNotThereYet) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "sub");
  fs::create_symlink("sub/a", folder / "link");
  fs::create_symlink(folder / "link", folder / "link_to_link");
  for (const char* text : {"first", "second"}) {
    write_whole(folder / "link_to_link", text);
    EXPECT_EQ(content(folder / "sub/a"), text);
  }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "link_to_link"));
}

TEST(AtomicFile, KeepsPermissionsAndOtherwiseHonoursTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = umask(027);
  write_whole(folder / "new", "");
  umask(before);
  EXPECT_EQ(permissions(folder / "new"), 0640U);
  chmod((folder / "new").c_str(), 0604);
  write_whole(folder / "new", "x");
  EXPECT_EQ(permissions(folder / "new"), 0604U);
}

TEST(AtomicFile, NamesUpToTheLongestWork) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  write_whole(folder / name, "x");
  EXPECT_EQ(content(folder / name), "x");
  const std::string too_long =
      message_of<std::system_error>([&] { write_whole(folder / std::string(256, 'n'), "x"); });
  EXPECT_NE(too_long.find("File name too long"), std::string::npos) << too_long;
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, WritersOfOneFileDoNotMix) {
  const TemporaryFolder folder;
  const auto text = [](int writer) { return std::string(100000, static_cast<char>('a' + writer)); };
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 5; ++i) write_whole(folder / "a", text(writer));
    });
  }
  for (std::thread& each : writers) each.join();
  const std::string last = content(folder / "a");
  EXPECT_EQ(last, text(last.at(0) - 'a'));
  EXPECT_EQ(folder.files(), 1);
}

TEST(AtomicFile, SaysWhatIsWrongWithThePath) {
  const TemporaryFolder folder;
  const auto message = [](const fs::path& path) {
    return message_of<std::runtime_error>([&] { AtomicFile{path}; });
  };
  EXPECT_EQ(message(folder / "no/a"), "cannot write '" + (folder / "no/a").string() +
                                          "': there is no folder '" + (folder / "no").string() +
                                          "'; create it first");
  EXPECT_EQ(message(folder.path()), "cannot write '" + folder.path().string() +
                                        "': it is a folder; give the name of a file");
  EXPECT_NE(message("").find("expected the name of a file"), std::string::npos);
  EXPECT_EQ(folder.files(), 0);
}

// /proc cannot be written to by anyone, also not by root, for whom permissions do not count.
TEST(AtomicFile, SaysWhyTheFolderTakesNoFile) {
  try {
    AtomicFile file("/proc/self/a");
    FAIL() << "was created";
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("cannot write '/proc/self/a': no file could be created "
                        "in '/proc/self'"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find(error.code().message()), std::string::npos);
  }
}

TEST(AtomicFile, WritesToDevicesDirectly) {
  write_whole("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  AtomicFile full("/dev/full");
  try {
    full.write("text");
    FAIL() << "was written";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOSPC);
    EXPECT_STREQ(error.what(), "cannot write '/dev/full': writing failed: No space left on device");
  }
  EXPECT_THROW(full.commit(), std::logic_error);
}

TEST(AtomicFile, TakesNothingAfterCommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.commit();
  EXPECT_THROW(file.write("x"), std::logic_error);
  EXPECT_THROW(file.commit(), std::logic_error);
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  for (const rlim_t limit : {0, 1, 4095, 4096, 99999}) {
    const auto result = run_limited(limit, AtLimit::error,
                                    [&] { write_whole(folder / "a", std::string(100000, 'x')); });
    EXPECT_EQ(result.error,
              "cannot write '" + (folder / "a").string() + "': writing failed: File too large");
    EXPECT_EQ(content(folder / "a"), "old");
    EXPECT_EQ(folder.files(), 1);
  }
  const auto result = run_limited(100000, AtLimit::error,
                                  [&] { write_whole(folder / "a", std::string(100000, 'x')); });
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(content(folder / "a"), std::string(100000, 'x'));
}

TEST(AtomicFile, KilledWhileWritingLeavesTheOldFile) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  const auto result = run_limited(50000, AtLimit::killed,
                                  [&] { write_whole(folder / "a", std::string(100000, 'x')); });
  EXPECT_TRUE(result.killed);
  EXPECT_EQ(content(folder / "a"), "old");
  // What is left behind is removed by the next writer.
  EXPECT_EQ(folder.files(), 2);
  write_whole(folder / "a", "new");
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_EQ(folder.files(), 1);
}

// In a container, processes that were killed had the number of this one.
TEST(AtomicFile, ATakenTemporaryNameIsLeftAloneWhileItIsLockedAndRemovedOtherwise) {
  const TemporaryFolder folder;
  // The counter goes on from here: take the next names.
  std::string name;
  {
    AtomicFile probe(folder / "a");
    name = fs::directory_iterator(folder.path())->path().string();
  }
  const auto dash = name.rfind('-') + 1;
  const int number = std::stoi(name.substr(dash));
  const auto taken = [&](int i) { return name.substr(0, dash) + std::to_string(number + i); };
  for (int i = 1; i <= 3; ++i) put(taken(i), "foreign");
  const FileDescriptor held(open(taken(1).c_str(), O_WRONLY));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  write_whole(folder / "a", "new");
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_EQ(folder.files(), 2);
  EXPECT_EQ(content(taken(1)), "foreign");
}

}  // namespace
}  // namespace pareprop::io
