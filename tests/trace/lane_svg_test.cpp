#include "pareprop/trace/lane_svg.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "pareprop/graph/schedule.h"

namespace pareprop {
namespace {

TaskGraph lane_svg_graph() {
  return backward_schedule(keep_plan(std::vector<Policy>(6, Policy::reverse)),
                           {.overlap = true, .deferred = 2, .lanes = 3});
}

Timeline lane_svg_timeline(const TaskGraph& graph) {
  return simulate(graph,
                  [](const Task& task) { return task.kind == TaskKind::recover ? 1e-3 : 2e-3; });
}

int count(const std::string& text, const std::string& piece) {
  int found = 0;
  for (auto at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

// The number of an attribute, of the first that follows `from`.
double attribute(const std::string& text, std::size_t from, const std::string& name) {
  const std::string start = " " + name + "=\"";
  const auto at = text.find(start, from);
  return at == std::string::npos ? -1.0 : std::stod(text.substr(at + start.size(), 20));
}

TEST(LaneSvg, EveryTaskHasABoxInsideThePageATooltipAndItsKind) {
  const TaskGraph graph = lane_svg_graph();
  const std::string svg = lane_svg(graph, lane_svg_timeline(graph));
  const double page_width = attribute(svg, 0, "width"), page_height = attribute(svg, 0, "height");
  int boxes = 0;
  for (auto at = svg.find("<g>"); at != std::string::npos; at = svg.find("<g>", at + 1), ++boxes) {
    ASSERT_LT(boxes, graph.size());
    const Task& task = graph[boxes];
    const std::string kind = task.kind == TaskKind::recover    ? "recover"
                             : task.kind == TaskKind::gradient ? "gradient"
                                                               : "weight";
    const std::string group = svg.substr(at, svg.find("</g>", at) - at);
    EXPECT_EQ(group.rfind("<g><title>" + label(task) + ": ", 0), 0U) << group;
    const auto box = group.find("<rect class=\"box " + kind + "\"");
    ASSERT_NE(box, std::string::npos) << group;
    EXPECT_GT(attribute(group, box, "width"), 0.0);
    EXPECT_LE(attribute(group, box, "x") + attribute(group, box, "width"), page_width);
    EXPECT_LE(attribute(group, box, "y") + attribute(group, box, "height"), page_height);
  }
  EXPECT_EQ(boxes, graph.size());
}

TEST(LaneSvg, StandsAloneInLightAndDark) {
  const std::string svg = lane_svg(lane_svg_graph(), lane_svg_timeline(lane_svg_graph()));
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0U);
  EXPECT_EQ(count(svg, "prefers-color-scheme: dark"), 1);
  EXPECT_EQ(count(svg, "href"), 0);
  EXPECT_EQ(count(svg, "url("), 0);
  EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
}

TEST(LaneSvg, TitleIsEscaped) {
  const std::string svg = lane_svg(TaskGraph{}, Timeline{}, "a < b & \"c\"");
  EXPECT_NE(svg.find("<title>a &lt; b &amp; &quot;c&quot;</title>"), std::string::npos);
  EXPECT_EQ(svg.find("a < b"), std::string::npos);
}

TEST(LaneSvg, RefusesForeignTimelines) {
  EXPECT_THROW(lane_svg(lane_svg_graph(), Timeline{}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
