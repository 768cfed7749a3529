// Longer texts on stdout.
#pragma once

#include <algorithm>
#include <string_view>

#include "cli/terminal.h"

namespace dslaunch {

// Each line of `text` for itself: what a slow reader does not take is dropped by whole lines.
inline void PrintText(Terminal& terminal, std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    terminal.Out(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace dslaunch
