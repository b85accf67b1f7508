// Draws what it reads: a JSON object on standard input,
//     {"title": ..., "x_label": ..., "y_label": ...,
//      "series": [{"name": ..., "points": [[x, y], ...], "line": true, "frontier": false}]}
// becomes a picture on standard output. Of a series that is a frontier the points are drawn that no
// other of it beats, joined by dashes. Ends with 1 and a line on standard error when it cannot.

#include <iostream>
#include <nlohmann/json.hpp>

#include "pareprop/draw/frontier.h"

namespace {

using namespace pareprop;
using nlohmann::json;

draw::Series series_of(const json& given) {
  draw::Series series{.name = given.at("name")};
  for (const json& point : given.at("points")) {
    series.points.push_back({.x = point.at(0), .y = point.at(1)});
  }
  const bool frontier = given.value("frontier", false);
  if (frontier) series.points = draw::frontier(std::move(series.points));
  series.dashed = frontier;
  series.markers = !frontier;
  series.line = given.value("line", true);
  return series;
}

std::string drawn(const json& given) {
  draw::LinePlot lines{.title = given.at("title"),
                       .x_label = given.at("x_label"),
                       .y_label = given.at("y_label"),
                       .y_from_zero = true};
  for (const json& series : given.at("series")) lines.series.push_back(series_of(series));
  return svg(lines);
}

}  // namespace

int main() {
  try {
    std::cout << drawn(json::parse(std::cin)) << std::flush;
    if (!std::cout) throw std::runtime_error("the picture could not be written");
  } catch (const std::exception& error) {
    std::cerr << "peers_plot: " << error.what() << '\n';
    return 1;
  }
}
