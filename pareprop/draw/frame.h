#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// What all plots have in common.
namespace pareprop::draw {

inline constexpr double kWidth = 480;
inline constexpr double kMargin = 12;
inline constexpr double kLetter = 7.5;      // width of a character, about
inline constexpr double kTitleBottom = 30;  // what comes next begins here

// The drawing up to its title. Its colours follow the reader's light or dark setting; its styles
// touch nothing else on a page that it stands in.
std::string begin(double height, std::string_view title);

// The class of the i-th colour. They can be told apart by the colour-blind; the seventh is the
// first again.
std::string colour(std::size_t i);

// At most about `pixels` wide, with an ellipsis where it was cut. Never cuts a UTF-8 character.
std::string shortened(std::string_view words, double pixels);
double width_of(std::string_view words);

struct LegendEntry {
  std::string name;
  bool line = true;  // or a box
  bool dashed = false;
};
struct Legend {
  std::string elements;
  double height = 0.0;
};
// In rows as wide as the drawing, the first one at `top`. Entry i has colour i.
Legend legend(const std::vector<LegendEntry>& entries, double top);

}  // namespace pareprop::draw
