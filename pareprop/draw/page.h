#pragma once

#include <string>
#include <string_view>

// What pages are made of: HTML that is XML too, in one file that needs no other and no script.
// Words are escaped here, elements are not.
namespace pareprop::draw {

// For the content of an element or an attribute; bytes that are no UTF-8 become U+FFFD.
std::string escaped(std::string_view words);
std::string element(const std::string& name, std::string_view words);
// A part of the page under a heading.
std::string section(std::string_view heading, const std::string& elements);
// A drawing in a frame. `id` may be empty.
std::string figure(std::string_view id, const std::string& svg);
// Figures side by side, as many as there is room for.
std::string plots(const std::string& figures);
// A number worth a box of its own, to be put in <dl class="figures">.
std::string key_figure(std::string_view name, std::string_view value, std::string_view more = "");

struct Document {
  std::string title = {};
  std::string_view style = {};  // besides kPageStyle
  std::string header = {};      // elements after the title
  std::string main = {};        // elements
};
// Follows the reader's light or dark setting.
std::string document(const Document& document);

}  // namespace pareprop::draw
