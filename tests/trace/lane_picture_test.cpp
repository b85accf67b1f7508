#include "pareprop/trace/lane_picture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "tests/graph/random_case.h"

namespace pareprop {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  bool escape = false;
  for (char c : line) {
    if (c == '\x1b') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++count;
    if (c == 'm') escape = false;
  }
  return count;
}

TaskGraph pictured_graph(int depth, const ScheduleOptions& options) {
  return backward_schedule(
      keep_plan(std::vector<Policy>(static_cast<std::size_t>(depth), Policy::reverse)), options);
}

Timeline milliseconds(const TaskGraph& graph) {
  return simulate(graph,
                  [](const Task& task) { return task.kind == TaskKind::recover ? 1e-3 : 2e-3; });
}

TEST(LanePicture, DrawsOneBlock) {
  const TaskGraph graph = pictured_graph(1, {.overlap = true});
  EXPECT_EQ(lane_picture(graph, milliseconds(graph), 48),
            "lane 0 |R G0...|R F0...|       |B F0===========|\n"
            "lane 1         |B G0===========|\n"
            "       +---------------+---------------+--------\n"
            "ms     0               2               4\n"
            "R.. recover   B== gradient\n"
            "total 5.00 ms   lane 0 busy 80%\n"
            "lane 1 busy 40%   overlapped 1.00 ms\n");
}

TEST(LanePicture, WithoutRoomATaskIsItsLetter) {
  const TaskGraph graph = pictured_graph(8, {.overlap = true});
  const auto picture = lines(lane_picture(graph, milliseconds(graph), 41));
  EXPECT_EQ(picture[0], "lane 0 RRRR R R R R R R R R R R R R B=B=");
  EXPECT_EQ(picture[1].substr(0, 13), "lane 1  B=B=B");
  EXPECT_EQ(picture[1].find('|'), std::string::npos);
}

TEST(LanePicture, MarksTheStackBelow) {
  const KeepPlan plan = keep_plan(std::vector<Policy>(2, Policy::reverse));
  const TaskGraph graph = backward_schedule(plan, {.overlap = true}, 0, &plan);
  const std::string picture = lane_picture(graph, milliseconds(graph), 120);
  EXPECT_NE(picture.find("R G1'"), std::string::npos);
  EXPECT_NE(picture.find("' stack below"), std::string::npos);
}

TEST(LanePicture, StrokesAndColoursAreOnlyAddedWhenAsked) {
  const TaskGraph graph = pictured_graph(3, {.overlap = true, .deferred = 2, .lanes = 3});
  const Timeline timeline = milliseconds(graph);
  const std::string plain = lane_picture(graph, timeline, 100);
  for (char c : plain) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  const std::string rich = lane_picture(graph, timeline, 100, {.unicode = true, .color = true});
  const auto plain_lines = lines(plain), rich_lines = lines(rich);
  ASSERT_EQ(plain_lines.size(), rich_lines.size());
  for (std::size_t i = 0; i < plain_lines.size(); ++i) {
    EXPECT_EQ(columns(plain_lines[i]), columns(rich_lines[i]));
  }
  EXPECT_NE(rich.find("\x1b["), std::string::npos);
}

TEST(LanePicture, NeverWiderThanTheTerminal) {
  const auto options = testing::all_schedule_options();
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto test = testing::random_case(random, static_cast<int>(random() % 17),
                                           options[random() % options.size()]);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + test.describe());
    const double scale = std::pow(10.0, static_cast<int>(random() % 9) - 6);
    const Timeline timeline = simulate(
        test.graph, [&](const Task&) { return scale * static_cast<double>(random() % 100); });
    for (int width : {40, 64, 80, 120, 200}) {
      const bool rich = random() % 2 == 0;
      const std::string picture =
          lane_picture(test.graph, timeline, width, {.unicode = rich, .color = rich});
      for (const std::string& line : lines(picture)) {
        ASSERT_LE(columns(line), static_cast<std::size_t>(width)) << picture;
      }
      const auto rows = lines(picture);
      ASSERT_GE(static_cast<int>(rows.size()), test.graph.lanes());
      for (int lane = 0; lane < test.graph.lanes(); ++lane) {
        ASSERT_EQ(rows[static_cast<std::size_t>(lane)].rfind("lane " + std::to_string(lane), 0),
                  0U);
      }
    }
  }
}

TEST(LanePicture, EmptyAndInstantRunsAreDrawn) {
  EXPECT_NO_THROW(lane_picture(TaskGraph{}, Timeline{}, 80));
  const TaskGraph graph = pictured_graph(2, {});
  EXPECT_NO_THROW(lane_picture(graph, simulate(graph, [](const Task&) { return 0.0; }), 80));
}

TEST(LanePicture, RefusesNarrowTerminalsAndForeignTimelines) {
  const TaskGraph graph = pictured_graph(2, {});
  EXPECT_THROW(lane_picture(graph, milliseconds(graph), 39), std::invalid_argument);
  EXPECT_THROW(lane_picture(graph, Timeline{}, 80), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
