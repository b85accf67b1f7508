#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop::testing {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // its own, unescaped
  std::vector<XmlElement> children;

  double number(const std::string& attribute) const { return std::stod(attributes.at(attribute)); }

  // This one and those inside with a name and, unless it is empty, a class, in their order.
  std::vector<const XmlElement*> all(std::string_view wanted, std::string_view css = "") const {
    std::vector<const XmlElement*> found;
    collect(wanted, css, found);
    return found;
  }

  bool has_class(std::string_view css) const {
    const auto classes = attributes.find("class");
    return classes != attributes.end() &&
           (" " + classes->second + " ").find(" " + std::string(css) + " ") != std::string::npos;
  }

 private:
  void collect(std::string_view wanted, std::string_view css,
               std::vector<const XmlElement*>& found) const {
    if (name == wanted && (css.empty() || has_class(css))) found.push_back(this);
    for (const XmlElement& child : children) child.collect(wanted, css, found);
  }
};

// Reads one element and what is inside, and is strict: throws std::runtime_error where tags do not
// match, an attribute has no quotes or comes twice, or a character should have been escaped.
class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  XmlElement read() {
    skip_space();
    constexpr std::string_view kDoctype = "<!DOCTYPE html>";
    if (text_.substr(at_, kDoctype.size()) == kDoctype) at_ += kDoctype.size();
    skip_space();
    XmlElement root = element();
    skip_space();
    expect(at_ == text_.size(), "more than one element");
    return root;
  }

 private:
  void expect(bool good, const std::string& what) const {
    if (good) return;
    throw std::runtime_error("XML: " + what + " at byte " + std::to_string(at_) + ": " +
                             std::string(text_.substr(at_ < 40 ? 0 : at_ - 40, 80)));
  }
  char peek() const {
    expect(at_ < text_.size(), "unexpected end");
    return text_[at_];
  }
  char next() {
    const char c = peek();
    ++at_;
    return c;
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \n\t").find(text_[at_]) != std::string::npos) {
      ++at_;
    }
  }
  std::string word() {
    const std::size_t begin = at_;
    while (std::string_view(" \n\t=/><\"&").find(peek()) == std::string::npos) ++at_;
    expect(at_ > begin, "a name is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }
  char escaped() {
    static const std::map<std::string, char> kKnown = {
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}};
    std::string name;
    while (peek() != ';' && name.size() < 5) name += next();
    expect(next() == ';' && kKnown.count(name) == 1, "'&' begins nothing known");
    return kKnown.at(name);
  }
  char character() {
    const char c = next();
    expect(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t', "a control character");
    return c == '&' ? escaped() : c;
  }

  void attributes_of(XmlElement& out) {
    for (skip_space(); peek() != '>' && peek() != '/'; skip_space()) {
      const std::string name = word();
      expect(next() == '=' && next() == '"', "an attribute without quotes");
      std::string value;
      while (peek() != '"') {
        expect(peek() != '<', "'<' in an attribute");
        value += character();
      }
      ++at_;
      expect(out.attributes.emplace(name, value).second, "an attribute comes twice");
    }
  }

  XmlElement element() {
    XmlElement out;
    expect(next() == '<', "an element was expected");
    out.name = word();
    attributes_of(out);
    if (next() == '/') {
      expect(next() == '>', "'/' in a tag");
      return out;
    }
    while (text_.substr(at_, 2) != "</") {
      if (peek() == '<') {
        out.children.push_back(element());
      } else {
        out.text += character();
      }
    }
    at_ += 2;
    expect(word() == out.name && next() == '>', "<" + out.name + "> ends differently");
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline XmlElement read_xml(std::string_view text) { return XmlReader(text).read(); }

}  // namespace pareprop::testing
