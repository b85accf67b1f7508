#include "cli/printable_stream.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/output_file.h"
#include "cli/table.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using testing::run_program;

bool has_controls(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return (code < 0x20 && c != '\n') || code == 0x7F;
  });
}

TEST(PrintableStream, EscapesWhatPassesAndKeepsLines) {
  std::ostringstream target;
  {
    PrintableStream stream(target, PrintableStream::Flush::when_asked);
    stream << "a \x1b[31m " << 7 << '\n' << "b \xc3\xa9";
    EXPECT_EQ(target.str(), "a \\x1b[31m 7\n");
    stream << std::flush;
    EXPECT_EQ(target.str(), "a \\x1b[31m 7\nb \xc3\xa9");
    write_raw(stream, "\x1b[K");
    stream << "rest";
  }
  EXPECT_EQ(target.str(), "a \\x1b[31m 7\nb \xc3\xa9\x1b[Krest");
}

TEST(PrintableStream, RemembersWhyAWriteFailed) {
  std::ofstream full("/dev/full");
  PrintableStream stream(full, PrintableStream::Flush::when_asked);
  stream << "text\n" << std::flush;
  EXPECT_FALSE(stream);
  EXPECT_EQ(stream.error(), ENOSPC);
}

TEST(PrintableStream, LinesOfAMessageCannotPassForMessages) {
  std::ostringstream out;
  say(out, "train", "three\npareprop: faked\nlines\n\n");
  EXPECT_EQ(out.str(), "train: three\n  pareprop: faked\n  lines\n");
}

TEST(Table, CellsArePrintableAndOfOneLine) {
  Table table({{"name", Align::left}, {"n"}});
  table.add_row({"a\nb\x1b[2J", "1"});
  EXPECT_EQ(table.text(), "name         n\n-----------  -\na\\nb\\x1b[2J  1\n");
  EXPECT_EQ(first_columns("aé日b", 3), "aé日");
  EXPECT_EQ(first_columns("ab", 3), "ab");
}

TEST(JsonOutput, StandardOutputGetsAsciiThatReadsBack) {
  std::ostringstream out;
  const nlohmann::ordered_json value = {{"name", "\x1b \u202e \u009b é"}};
  JsonOutput("-", out).write(value);
  const std::string text = out.str();
  EXPECT_FALSE(has_controls(text));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c > 0; }));
  EXPECT_EQ(nlohmann::ordered_json::parse(text), value);
}

// Names that come from outside, through the whole program.
TEST(Run, WhatComesFromOutsideReachesNoTerminalAsItIs) {
  const testing::ScratchFolder folder;
  const std::string hostile = "x\x1b]0;owned\a\x1b[2J\u202e\u009b\x7f";
  const std::string name = folder / hostile + ".json";
  std::ofstream(name) << R"({"x\u001b[2J": 1})";
  const std::vector<std::vector<std::string>> uses = {
      {hostile},
      {"verify", "--" + hostile},
      {"verify", "--model", hostile},
      {"verify", "--modes", hostile},
      {"bench", "--sweep", name},
      {"bench", "--out", name},
      {"report", name},
      {"train", "--config", name},
      {"train", "--data", "folder:" + folder / hostile, "--out", folder / "run"},
      {"train", "--weights", name, "--out", folder / "run"},
      {"plan", "--budget", hostile},
      {"models", "--json", folder / hostile + "/a.json"},
      {"predict", "--run", folder / hostile, "a"},
      {"eval", "--run", folder / hostile}};
  for (const auto& use : uses) {
    const auto run = run_program(use);
    EXPECT_NE(run.code, 0) << use[0];
    for (const std::string& text : {run.out, run.err}) {
      EXPECT_FALSE(has_controls(text)) << use[0] << ": " << text;
      EXPECT_EQ(text.find("\u202e"), std::string::npos) << use[0] << ": " << text;
      EXPECT_EQ(text.find("\u009b"), std::string::npos) << use[0] << ": " << text;
    }
  }
}

}  // namespace
}  // namespace pareprop::cli
