#pragma once

#include <string>
#include <string_view>

#include "pareprop/graph/task.h"

// Pieces of text that the drawings of a graph share.
namespace pareprop::text {

// With `decimals` digits after the point, in every locale.
std::string fixed(double value, int decimals);

// The distance of the ticks of an axis: 1, 2 or 5 times a power of ten, the smallest that makes at
// most `ticks` steps of `length`. `length` > 0, `ticks` >= 1.
double tick_step(double length, int ticks);
// Decimals that such a step needs.
int tick_decimals(double step);

// In quotes, escaped for JSON.
std::string json(std::string_view text);
// In quotes, escaped for Graphviz.
std::string dot(std::string_view text);
// Escaped for the content of an XML element or an attribute in double quotes.
std::string xml(std::string_view text);

// For a terminal, whoever wrote the text: control characters, marks that change the direction of
// writing or cannot be seen, and bytes that are no UTF-8 become escapes such as \x1b or \u202e.
// Line breaks and tabs stay, or become \n and \t.
enum class Lines { kept, escaped };
std::string printable(std::string_view text, Lines lines = Lines::escaped);

// R recover, B gradient, W weight gradient.
char letter(TaskKind kind);
// "R F3", "B G0", "R G5'" (in the stack below).
std::string short_label(const Task& task);

}  // namespace pareprop::text
