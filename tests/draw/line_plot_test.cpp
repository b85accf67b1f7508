#include "pareprop/draw/line_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "tests/draw/xml_reader.h"

namespace pareprop::draw {
namespace {

using pareprop::testing::read_xml;
using pareprop::testing::XmlElement;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

LinePlot example() {
  return {
      .title = "Loss",
      .x_label = "step",
      .series = {
          {.name = "training", .points = {{1, 3.0}, {2, 2.0}, {3, 1.0}}},
          {.name = "evaluation", .points = {{1, 3.5}, {3, 1.5}}, .dashed = true, .markers = true}}};
}

// The group of a series is found by the title it begins with.
const XmlElement& group_of(const XmlElement& root, const std::string& name) {
  for (const XmlElement* group : root.all("g")) {
    if (group->children.at(0).text == name) return *group;
  }
  throw std::runtime_error("no series " + name);
}

// The numbers of a path, two a point.
std::vector<Point> points_of(const XmlElement& group) {
  std::vector<Point> points;
  for (const XmlElement* path : group.all("path")) {
    std::string numbers = path->attributes.at("d");
    for (char& c : numbers) c = c == 'M' || c == 'L' ? ' ' : c;
    std::istringstream stream(numbers);
    for (Point point; stream >> point.x >> point.y;) points.push_back(point);
  }
  return points;
}

int pieces_of(const XmlElement& group) {
  int pieces = 0;
  for (const XmlElement* path : group.all("path")) {
    for (char c : path->attributes.at("d")) pieces += c == 'M' ? 1 : 0;
  }
  return pieces;
}

TEST(LinePlot, HasEverySeriesWithItsPointsInsideTheFrame) {
  const XmlElement root = read_xml(svg(example()));
  const std::vector<Point> training = points_of(group_of(root, "training"));
  ASSERT_EQ(training.size(), 3U);
  EXPECT_LT(training[0].x, training[1].x);
  EXPECT_LT(training[0].y, training[1].y);  // down the page
  EXPECT_NEAR(training[1].x - training[0].x, training[2].x - training[1].x, 0.02);
  EXPECT_NEAR(training[1].y - training[0].y, training[2].y - training[1].y, 0.02);
  for (const Point& point : training) {
    EXPECT_GE(point.x, 0.0);
    EXPECT_LE(point.x, root.number("width"));
    EXPECT_GE(point.y, 0.0);
    EXPECT_LE(point.y, root.number("height"));
  }
  const XmlElement& evaluation = group_of(root, "evaluation");
  EXPECT_EQ(evaluation.all("path", "dashed").size(), 1U);
  EXPECT_EQ(evaluation.all("circle", "dot").size(), 2U);
  EXPECT_EQ(group_of(root, "training").all("circle", "dot").size(), 0U);
  EXPECT_NE(group_of(root, "training").attributes.at("class"), evaluation.attributes.at("class"));
}

TEST(LinePlot, FewPointsTellTheirValues) {
  const XmlElement root = read_xml(svg(example()));
  const auto circles = group_of(root, "training").all("circle");
  ASSERT_EQ(circles.size(), 3U);
  EXPECT_EQ(circles[1]->children.at(0).text, "training: 2 at step 2");
}

TEST(LinePlot, LegendNamesSeriesOnlyWhereThereAreSeveral) {
  const auto words = [](const LinePlot& plot) {
    const XmlElement root = read_xml(svg(plot));
    std::string all;
    for (const XmlElement* text : root.all("text")) all += text->text + "|";
    return all;
  };
  LinePlot plot = example();
  EXPECT_NE(words(plot).find("|evaluation|"), std::string::npos);
  plot.series.pop_back();
  EXPECT_EQ(words(plot).find("training"), std::string::npos);
}

TEST(LinePlot, StandsAloneInLightAndDark) {
  const std::string picture = svg(example());
  EXPECT_EQ(picture.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0U);
  EXPECT_NE(picture.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(picture.find("viewBox"), std::string::npos);
  EXPECT_EQ(picture.find("href"), std::string::npos);
  EXPECT_EQ(picture.find("url("), std::string::npos);
}

TEST(LinePlot, WordsAreEscapedAndLongOnesCut) {
  LinePlot plot = example();
  plot.title = "a < b & \"c\"";
  plot.x_label = "<x>";
  plot.y_label = "</text>";
  plot.series[0].name = "</svg>\x01" + std::string(500, 'n');
  plot.series[1].name = "";
  for (int i = 0; i < 100; ++i) plot.series[1].name += "ä";
  const XmlElement root = read_xml(svg(plot));
  EXPECT_EQ(root.all("title").front()->text, plot.title);
  EXPECT_EQ(group_of(root, plot.series[1].name).all("circle").size(), 2U);
  for (const XmlElement* text : root.all("text")) EXPECT_LT(text->text.size(), 200U);
}

TEST(LinePlot, PointsThatAreNoNumbersLeaveGaps) {
  LinePlot plot{
      .title = "t",
      .series = {
          {.name = "s",
           .points = {{0, 1}, {1, 2}, {2, kNan}, {3, 3}, {kInf, 4}, {5, -kInf}, {6, 7}, {7, 8}}}}};
  const std::string picture = svg(plot);
  const XmlElement root = read_xml(picture);
  EXPECT_EQ(pieces_of(group_of(root, "s")), 2);
  EXPECT_EQ(points_of(group_of(root, "s")).size(), 4U);
  EXPECT_EQ(group_of(root, "s").all("circle").size(), 5U);
  EXPECT_EQ(group_of(root, "s").all("circle", "dot").size(), 1U);  // the one between gaps
  EXPECT_EQ(picture.find("nan"), std::string::npos);
  EXPECT_EQ(picture.find("inf"), std::string::npos);
}

TEST(LinePlot, OneBetweenGapsIsADot) {
  LinePlot plot{.title = "t", .series = {{.name = "s", .points = {{1, 5}}}}};
  EXPECT_EQ(group_of(read_xml(svg(plot)), "s").all("circle", "dot").size(), 1U);
  auto& points = plot.series[0].points;
  points = {{0, kNan}};
  for (int i = 1; i < 200; ++i) points.push_back({static_cast<double>(i), i == 100 ? kNan : 1.0});
  points.push_back({200, kNan});
  points.push_back({201, 2});
  EXPECT_EQ(group_of(read_xml(svg(plot)), "s").all("circle", "dot").size(), 1U);
}

TEST(LinePlot, LogarithmicAxesLeaveOutWhatIsNotPositive) {
  LinePlot plot{.title = "t",
                .series = {{.name = "s", .points = {{1, 1}, {10, 0}, {100, 10}, {1000, 100}}}},
                .log_x = true,
                .log_y = true};
  const auto points = points_of(group_of(read_xml(svg(plot)), "s"));
  ASSERT_EQ(points.size(), 2U);
  EXPECT_GT(points[0].y, points[1].y);
}

TEST(LinePlot, EmptyOnesSaySo) {
  LinePlot plot{.title = "t"};
  EXPECT_NE(svg(plot).find("no data"), std::string::npos);
  plot.series = {{.name = "a"}, {.name = "b", .points = {{kNan, 1}}}};
  for (const bool log : {false, true}) {
    plot.log_x = plot.log_y = log;
    const std::string picture = svg(plot);
    EXPECT_NE(picture.find("no data"), std::string::npos);
    EXPECT_EQ(pieces_of(read_xml(picture)), 0);
  }
  EXPECT_EQ(svg(example()).find("no data"), std::string::npos);
}

TEST(LinePlot, EqualHugeAndSmallValuesStayInsideThePicture) {
  for (const double value : {0.0, 7.0, -7.0, 1e300, -1e300, 1e-300, 5e-324, 1e16}) {
    LinePlot plot{.title = "t", .series = {{.name = "s"}}};
    for (int i = 0; i < 100; ++i) plot.series[0].points.push_back({value, value});
    for (const double other : {value, 0.0, -value}) {
      plot.series[0].points.push_back({other, other});
      const XmlElement root = read_xml(svg(plot));
      for (const Point& point : points_of(group_of(root, "s"))) {
        EXPECT_GE(point.x, 0.0);
        EXPECT_LE(point.x, root.number("width"));
        EXPECT_GE(point.y, 0.0);
        EXPECT_LE(point.y, root.number("height"));
      }
    }
  }
}

TEST(LinePlot, ThousandsOfPointsBecomeASmallPictureWithTheirExtremes) {
  LinePlot plot{.title = "t", .series = {{.name = "s"}}};
  constexpr int kPoints = 100000, kPeak = 54321;
  for (int i = 0; i < kPoints; ++i) {
    plot.series[0].points.push_back({static_cast<double>(i), i == kPeak ? 100.0 : std::sin(i)});
  }
  const std::string picture = svg(plot);
  EXPECT_LT(picture.size(), 60000U);
  const auto points = points_of(group_of(read_xml(picture), "s"));
  double highest = kInf, second = kInf;
  for (const Point& point : points) {
    if (point.y < highest) {
      second = highest;
      highest = point.y;
    } else {
      second = std::min(second, point.y);
    }
  }
  EXPECT_GT(second - highest, 100.0);  // pixels: the peak is there, and alone
}

TEST(LinePlot, DotsWithoutALine) {
  const XmlElement root = read_xml(
      svg(LinePlot{.title = "t",
                   .series = {{.name = "dots", .points = {{1, 2}, {2, 3}, {3, 1}}, .line = false},
                              {.name = "line", .points = {{1, 2}, {2, 3}}}}}));
  const auto groups = root.all("g");
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0]->all("path").size(), 0U);
  EXPECT_EQ(groups[0]->all("circle", "dot").size(), 3U);
  EXPECT_EQ(groups[1]->all("path", "curve").size(), 1U);
  EXPECT_EQ(root.all("rect", "bar").size(), 1U);  // of the legend
}

}  // namespace
}  // namespace pareprop::draw
