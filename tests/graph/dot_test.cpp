#include "pareprop/graph/dot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "pareprop/graph/schedule.h"

namespace pareprop {
namespace {

TaskGraph drawn_graph(const ScheduleOptions& options) {
  return backward_schedule(keep_plan(std::vector<Policy>(4, Policy::reverse)), options);
}

// Edges of the text that carry, or do not carry, the dashed style.
std::set<std::pair<int, int>> edges(const std::string& dot, bool dashed) {
  std::set<std::pair<int, int>> found;
  std::istringstream in(dot);
  for (std::string line; std::getline(in, line);) {
    int from = 0, to = 0;
    if (std::sscanf(line.c_str(), " t%d -> t%d", &from, &to) != 2) continue;
    const bool is_dashed = line.find("style=dashed") != std::string::npos;
    if (is_dashed == dashed) found.emplace(from, to);
  }
  return found;
}

TEST(Dot, SolidEdgesAreTheNeeds) {
  const TaskGraph graph = drawn_graph({.overlap = true, .deferred = 2, .lanes = 3});
  std::set<std::pair<int, int>> needs;
  for (int id = 0; id < graph.size(); ++id) {
    for (int needed : graph[id].needs) needs.emplace(needed, id);
  }
  EXPECT_EQ(edges(to_dot(graph), false), needs);
}

TEST(Dot, DashedEdgesAreTheOrderOfLanesWhereNoNeedSaysIt) {
  const TaskGraph graph = drawn_graph({.overlap = true, .deferred = 2, .lanes = 2});
  std::set<std::pair<int, int>> order;
  for (int id = 0; id < graph.size(); ++id) {
    int last = id - 1;
    while (last >= 0 && graph[last].lane != graph[id].lane) --last;
    const auto& needs = graph[id].needs;
    if (last >= 0 && std::count(needs.begin(), needs.end(), last) == 0) order.emplace(last, id);
  }
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(edges(to_dot(graph), true), order);
}

TEST(Dot, OneClusterPerLaneAndOneNodePerTask) {
  const TaskGraph graph = drawn_graph({.overlap = true, .deferred = 1, .lanes = 3});
  const std::string dot = to_dot(graph);
  for (int lane = 0; lane < 3; ++lane) {
    EXPECT_NE(dot.find("subgraph cluster_lane" + std::to_string(lane) + " {"), std::string::npos);
  }
  EXPECT_EQ(dot.find("cluster_lane3"), std::string::npos);
  for (int id = 0; id < graph.size(); ++id) {
    const std::string node = "t" + std::to_string(id) + " [label=\"" + label(graph[id]) + "\"";
    EXPECT_NE(dot.find(node), std::string::npos) << node;
  }
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
}

TEST(Dot, TitleIsEscapedAndEmptyGraphsAreDrawn) {
  EXPECT_EQ(to_dot(TaskGraph{}, "a \"b\"").rfind("digraph \"a \\\"b\\\"\" {", 0), 0U);
}

}  // namespace
}  // namespace pareprop
