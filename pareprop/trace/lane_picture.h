#pragma once

#include <string>

#include "pareprop/graph/timeline.h"

namespace pareprop {

struct PictureOptions {
  bool unicode = false;  // box characters instead of ASCII
  bool color = false;    // ANSI colours
};

// The run as text for a terminal of `width` columns, at least 40: a row per lane, time from left to
// right, every task a run of characters with its short label where that fits; an axis in
// milliseconds, a legend, and how busy the lanes were. Lines end with a newline.
// Throws std::invalid_argument when the terminal is narrower or the timeline is not of this graph.
std::string lane_picture(const TaskGraph& graph, const Timeline& timeline, int width,
                         const PictureOptions& options = {});

}  // namespace pareprop
