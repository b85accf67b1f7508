#include "pareprop/data/text/text_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;
namespace fs = std::filesystem;

std::string held_out(const std::string& text) { return text.substr(held_out_begin(text)); }

TEST(TextFiles, AreReadInTheOrderOfTheirNames) {
  const TemporaryFolder folder;
  put(folder / "b.txt", "second");
  put(folder / "a.txt",
      "\xef\xbb\xbf"
      "first");
  put(folder / "a.md", "not this");
  fs::create_directory(folder / "c");
  put(folder / "c" / "d.txt", "\u00e9");
  const auto files = read_text_files(folder.path()).files;
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].text, "first");
  EXPECT_EQ(files[1].text, "second");
  EXPECT_EQ(files[2].text, "\u00e9");
  EXPECT_EQ(read_text_files(folder / "a.md").files.at(0).text, "not this");
}

TEST(TextFiles, WhatCannotBeReadInAFolderIsLeftOutAndListed) {
  const TemporaryFolder folder;
  put(folder / "a.txt", "text");
  fs::create_symlink("self.txt", folder / "self.txt");
  fs::create_symlink("nowhere", folder / "gone.txt");
  ASSERT_EQ(mkfifo((folder / "pipe.txt").c_str(), 0600), 0);
  const TextFiles found = read_text_files(folder.path());
  ASSERT_EQ(found.files.size(), 1U);
  EXPECT_EQ(found.files[0].text, "text");
  ASSERT_EQ(found.left_out.size(), 3U);
  EXPECT_EQ(found.left_out[0],
            "cannot read '" + (folder / "gone.txt").string() + "': No such file or directory");
  EXPECT_NE(found.left_out[1].find("it is a pipe"), std::string::npos) << found.left_out[1];
  EXPECT_NE(found.left_out[2].find("Too many levels of symbolic links"), std::string::npos);

  fs::remove(folder / "a.txt");
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              read_text_files(folder.path());
            }).find("has no text that can be read: cannot read '"),
            std::string::npos);
}

TEST(TextFiles, NameTheLineAndByteThatIsNotUtf8) {
  const TemporaryFolder folder;
  const fs::path path = folder / "a.txt";
  put(path,
      "one\ntwo\nthr\xe9"
      "e\n");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { read_text_files(path); }),
            "text: '" + path.string() +
                "' is not UTF-8: line 3, byte 11 of the file; convert it, for example with iconv");
}

TEST(TextFiles, RefuseWhatHasNoText) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { read_text_files(folder.path()); }),
      "text: the folder '" + folder.path().string() + "' has no file whose name ends in .txt");
  put(folder / "a.txt", "");
  for (const fs::path& path : {folder / "a.txt", folder.path()}) {
    EXPECT_EQ(message_of<std::invalid_argument>([&] { read_text_files(path); }),
              "text: '" + path.string() + "' is empty; expected text in UTF-8");
  }
  EXPECT_NE(
      message_of<std::system_error>([&] { read_text_files(folder / "no.txt"); }).find("no.txt"),
      std::string::npos);
}

TEST(HeldOut, IsTheLastTwentiethFromAParagraphOn) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(100 + i) + (i % 2 ? "\n\n" : "\n");
  const std::string part = held_out(text);
  EXPECT_EQ(part, "line 196\nline 197\n\nline 198\nline 199\n\n");
  EXPECT_LE(part.size() * 20, text.size());
}

TEST(HeldOut, StartsAtALineWhereNoParagraphDoes) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(100 + i) + "\r\n";
  EXPECT_EQ(held_out(text), "line 195\r\nline 196\r\nline 197\r\nline 198\r\nline 199\r\n");
}

TEST(HeldOut, IsNothingInOneLineOrNoText) {
  EXPECT_EQ(held_out(std::string(1000, 'a')), "");
  EXPECT_EQ(held_out(std::string(1000, 'a') + "\n\n  \n"), "");
  EXPECT_EQ(held_out("a\nb\nc\n"), "");
  EXPECT_EQ(held_out(""), "");
}

TEST(TextFiles, WordsAreHeldOutAtASpaceOrElseAtACharacter) {
  const auto held = [](const std::string& text) { return text.substr(held_out_word(text)); };
  EXPECT_EQ(held(std::string(96, 'x') + " yz"), " yz");
  EXPECT_EQ(held(std::string(100, 'x')), "xxxxx");
  std::string letters;
  for (int i = 0; i < 33; ++i) letters += "\u65e5";
  EXPECT_EQ(held("a" + letters), "\u65e5");
  EXPECT_EQ(held("short"), "");
}

}  // namespace
}  // namespace pareprop::data
