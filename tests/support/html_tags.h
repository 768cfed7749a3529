// Checks the tags of a report's page: names from files must add none.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the first tag that a report's page never contains or that has an event handler or
// unbalanced quotes; "" if there is none.
inline std::string FirstForeignTag(std::string_view page) {
  static constexpr std::string_view kOwn[] = {
      "!DOCTYPE", "html",  "head",     "meta",    "title",  "style", "body",    "main",
      "header",   "h1",    "h2",       "h3",      "p",      "code",  "span",    "strong",
      "small",    "dl",    "dt",       "dd",      "div",    "ul",    "li",      "i",
      "table",    "thead", "tbody",    "tr",      "th",     "td",    "section", "svg",
      "text",     "line",  "polyline", "polygon", "circle", "path",  "rect",    "footer"};
  for (size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    const std::string_view tag = page.substr(at + 1, end - at - 1);
    const size_t begin = tag.starts_with('/') ? 1 : 0;
    const std::string_view name =
        tag.substr(begin, std::min(tag.find_first_of(" \n", begin), tag.size()) - begin);
    const bool has_handler = tag.find(" on") != std::string_view::npos;
    if (end == std::string_view::npos || std::ranges::count(kOwn, name) == 0 || has_handler)
      return std::string(tag.substr(0, 100));
    // Unbalanced quotes would extend an attribute's value beyond the tag.
    if (std::ranges::count(tag, '"') % 2 != 0) return std::string(tag.substr(0, 100));
  }
  return "";
}

}  // namespace dslaunch
