#include "pareprop/draw/svg.h"

#include "pareprop/text/escape.h"
#include "pareprop/text/fixed.h"

namespace pareprop::svg {
namespace {

std::string attribute(std::string_view name, double value) {
  return " " + std::string(name) + "=\"" + number(value) + "\"";
}

std::string element(const std::string& name, std::string_view classes) {
  return "<" + name + " class=\"" + std::string(classes) + "\"";
}

}  // namespace

std::string number(double value) { return text::fixed(value, 2); }

std::string open(double width, double height, std::string_view classes, std::string_view title,
                 Shrinks shrinks) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", width) +
         attribute("height", height) + " viewBox=\"0 0 " + number(width) + " " + number(height) +
         "\" class=\"" + std::string(classes) +
         (shrinks == Shrinks::yes ? "\" style=\"max-width: 100%; height: auto" : "") +
         "\" role=\"img\">\n" + tooltip(title) + "\n";
}

std::string rect(std::string_view classes, double x, double y, double width, double height,
                 const std::string& elements) {
  return element("rect", classes) + attribute("x", x) + attribute("y", y) +
         attribute("width", width) + attribute("height", height) +
         (elements.empty() ? "/>" : ">" + elements + "</rect>") + "\n";
}

std::string line(std::string_view classes, double x1, double y1, double x2, double y2) {
  return element("line", classes) + attribute("x1", x1) + attribute("y1", y1) +
         attribute("x2", x2) + attribute("y2", y2) + "/>\n";
}

std::string polygon(std::string_view classes, const std::vector<std::pair<double, double>>& corners,
                    const std::string& elements) {
  std::string points;
  for (const auto& [x, y] : corners) {
    points += (points.empty() ? "" : " ") + number(x) + "," + number(y);
  }
  return element("polygon", classes) + " points=\"" + points + "\"" +
         (elements.empty() ? "/>" : ">" + elements + "</polygon>") + "\n";
}

std::string words(double x, double y, std::string_view content, std::string_view classes,
                  std::string_view anchor, const std::string& elements) {
  return element("text", classes) + attribute("x", x) + attribute("y", y) + " text-anchor=\"" +
         std::string(anchor) + "\">" + text::xml(content) + elements + "</text>\n";
}

std::string tooltip(std::string_view content) {
  return "<title>" + text::xml(content) + "</title>";
}

}  // namespace pareprop::svg
