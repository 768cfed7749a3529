// Pages of the documentation as plain text for a terminal. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

// Where a link of a page leads, in words for a reader of a terminal; empty: its text says enough.
using LinkText = std::function<std::string(std::string_view target)>;

// What docs/*.md use of Markdown, in lines of at most `width` columns where words allow: headings,
// paragraphs, lists, tables, fenced blocks, code, bold text and links. Blocks are indented and not
// wrapped; comments of one line are left out. No escape sequences. Other Markdown stays as it is
// written.
std::string RenderMarkdown(std::string_view page, size_t width, const LinkText& link_text);

}  // namespace dslaunch
