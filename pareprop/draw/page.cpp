#include "pareprop/draw/page.h"

#include "pareprop/draw/page_style.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/utf8.h"

namespace pareprop::draw {

std::string escaped(std::string_view words) {
  std::string good;
  while (!words.empty()) {
    const std::size_t well = text::first_ill_formed(words);
    good += words.substr(0, well);
    words.remove_prefix(well);
    if (words.empty()) break;
    good += "\uFFFD";
    words.remove_prefix(1);
  }
  return text::xml(good);
}

std::string element(const std::string& name, std::string_view words) {
  std::string out = "<";
  out += name + ">" + escaped(words) + "</" + name + ">\n";
  return out;
}

std::string section(std::string_view heading, const std::string& elements) {
  return "<section>\n" + element("h2", heading) + elements + "</section>\n";
}

std::string figure(std::string_view id, const std::string& svg) {
  std::string out = "<figure";
  if (!id.empty()) out += " id=\"" + escaped(id) + "\"";
  return out + ">" + svg + "</figure>\n";
}

std::string plots(const std::string& figures) {
  return "<div class=\"plots\">\n" + figures + "</div>\n";
}

std::string key_figure(std::string_view name, std::string_view value, std::string_view more) {
  return "<div>" + element("dt", name) + element("dd", value) +
         (more.empty() ? "" : "<dd class=\"more\">" + escaped(more) + "</dd>") + "</div>\n";
}

std::string document(const Document& document) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n";
  out += element("title", document.title);
  for (const std::string_view style : {kPageStyle, document.style}) {
    if (!style.empty()) out += "<style>" + std::string(style) + "</style>\n";
  }
  return out + "</head>\n<body>\n<header>\n" + element("h1", document.title) + document.header +
         "</header>\n<main>\n" + document.main + "</main>\n</body>\n</html>\n";
}

}  // namespace pareprop::draw
