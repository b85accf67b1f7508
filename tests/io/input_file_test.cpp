#include "pareprop/io/input_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;

std::string read_refusal(const fs::path& path, const ReadFileOptions& options = {}) {
  return message_of<std::runtime_error>([&] { read_text_file(path, options); });
}

TEST(InputFile, IsReadWholeAsTextOrBytes) {
  const TemporaryFolder folder;
  const std::string text("a\0b\n", 4);
  put(folder / "a", text);
  EXPECT_EQ(read_text_file(folder / "a"), text);
  const auto bytes = read_binary_file(folder / "a");
  ASSERT_EQ(bytes.size(), 4U);
  EXPECT_EQ(bytes[2], std::byte{'b'});
  put(folder / "empty", "");
  EXPECT_EQ(read_text_file(folder / "empty"), "");
  fs::create_symlink("a", folder / "link");
  EXPECT_EQ(read_text_file(folder / "link"), text);
}

// A pipe without a writer: opening it in the usual way never returns.
TEST(InputFile, WhatIsNoRegularFileIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const auto expected = [](const fs::path& path, const std::string& why) {
    return "cannot read '" + path.string() + "': " + why;
  };
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_refusal(folder / "pipe"),
            expected(folder / "pipe", "it is a pipe; expected a regular file"));
  fs::create_symlink("pipe", folder / "link");
  EXPECT_EQ(read_refusal(folder / "link"),
            expected(folder / "link", "it is a pipe; expected a regular file"));
  EXPECT_EQ(read_refusal("/dev/zero"),
            expected("/dev/zero", "it is a device; expected a regular file"));
  EXPECT_EQ(read_refusal(folder.path()),
            expected(folder.path(), "it is a folder; give the name of a file"));
  EXPECT_EQ(read_refusal(folder / "no"), expected(folder / "no", "No such file or directory"));
  fs::create_symlink("self", folder / "self");
  EXPECT_EQ(read_refusal(folder / "self"),
            expected(folder / "self", "Too many levels of symbolic links"));

  const int socket_number = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "s").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket_number, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(read_refusal(folder / "s"),
            expected(folder / "s", "it is a socket; expected a regular file"));
  close(socket_number);
}

// A sparse file: it would fill the memory if it were read.
TEST(InputFile, ALargerFileThanExpectedIsNotRead) {
  const TemporaryFolder folder;
  put(folder / "a", "");
  fs::resize_file(folder / "a", std::uintmax_t{1} << 40);
  EXPECT_EQ(read_refusal(folder / "a"),
            "cannot read '" + (folder / "a").string() +
                "': it has 1099511627776 bytes; expected at most 16777216");
  fs::resize_file(folder / "a", 5);
  EXPECT_EQ(read_text_file(folder / "a", {.most_bytes = 5}).size(), 5U);
  EXPECT_NE(read_refusal(folder / "a", {.most_bytes = 4}).find("at most 4"), std::string::npos);
}

TEST(InputFile, LinksOutOfAFolderAreRefusedWhereTheCallerSaysSo) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "run/sub");
  fs::create_directory(folder / "run-2");
  put(folder / "secret", "secret");
  put(folder / "run-2/config", "beside");
  put(folder / "run/config", "inside");
  fs::create_symlink("../config", folder / "run/sub/link");
  fs::create_symlink("../secret", folder / "run/out");
  fs::create_symlink(folder / "run-2", folder / "run/folder");
  fs::create_symlink("run", folder / "alias");
  const auto read = [&](const char* name, const char* within) {
    return read_text_file(folder / name, {.within = folder / within});
  };
  EXPECT_EQ(read("run/config", "run"), "inside");
  EXPECT_EQ(read("run/sub/link", "run"), "inside");
  EXPECT_EQ(read("alias/config", "alias"), "inside");
  for (const char* name : {"run/out", "run/folder/config", "alias/out"}) {
    const std::string message = read_refusal(folder / name, {.within = folder / "run"});
    EXPECT_NE(message.find("which is outside of '" + (folder / "run").string() +
                           "'; expected a file in that folder"),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(read_refusal(folder / "run/no", {.within = folder / "run"}),
            "cannot read '" + (folder / "run/no").string() + "': No such file or directory");
}

TEST(InputFile, AFileThatBecomesShorterIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  put(folder / "a", std::string(100000, 'x'));
  const InputFile file(folder / "a");
  fs::resize_file(folder / "a", 5000);
  std::vector<std::byte> bytes(100000);
  EXPECT_EQ(
      message_of<std::runtime_error>([&] { file.read(0, bytes); }),
      "cannot read '" + (folder / "a").string() +
          "': it became shorter while it was read: it had 100000 bytes and now ends at byte 5000"
          ". Is another program writing to it?");
}

TEST(InputFile, AFileThatIsReplacedOrRemovedIsReadAsItWas) {
  const TemporaryFolder folder;
  put(folder / "a", "first");
  const InputFile file(folder / "a");
  put(folder / "b", "other");
  fs::rename(folder / "b", folder / "a");
  fs::remove(folder / "a");
  std::string text(5, ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "first");
}

}  // namespace
}  // namespace pareprop::io
