#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Elements that all drawings are made of. What they hold is escaped here, unless it is elements.
namespace pareprop::svg {

// A coordinate.
std::string number(double value);

// The opening tag of a whole drawing, with its title. One that shrinks is never wider than the
// window, or what else holds it.
enum class Shrinks { no, yes };
std::string open(double width, double height, std::string_view classes, std::string_view title,
                 Shrinks shrinks = Shrinks::no);

std::string rect(std::string_view classes, double x, double y, double width, double height,
                 const std::string& elements = "");
std::string line(std::string_view classes, double x1, double y1, double x2, double y2);
std::string polygon(std::string_view classes, const std::vector<std::pair<double, double>>& corners,
                    const std::string& elements = "");
// `anchor`: start, middle or end.
std::string words(double x, double y, std::string_view content, std::string_view classes,
                  std::string_view anchor = "start", const std::string& elements = "");
// What a pointer that rests on the element around it shows.
std::string tooltip(std::string_view content);

}  // namespace pareprop::svg
