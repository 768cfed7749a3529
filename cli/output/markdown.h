// Renders pages of the documentation as plain text for a terminal. All functions are pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the text that is printed after a link to `target`, or "" if the link's own text suffices.
using LinkText = std::function<std::string(std::string_view target)>;

// Renders the Markdown that docs/*.md use: headings, paragraphs, lists, tables, fenced blocks,
// code, bold text and links. Lines are wrapped at `width` columns, except words that are longer;
// fenced blocks are indented and not wrapped. Comments of one line are removed. Other Markdown is
// copied unchanged. The result has no escape sequences.
std::string RenderMarkdown(std::string_view page, size_t width, const LinkText& link_text);

}  // namespace dslaunch
