// Measures and cuts lines for the width of a terminal.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns the number of columns of `line`. Precondition: `line` is sanitized for a terminal (UTF-8,
// and no control sequences except colours).
int ShownWidth(std::string_view line);

// Returns `line` cut to fit a terminal of width `columns`, with colours reset at its end. Leaves
// the last column free, because writing there makes some terminals wrap.
std::string FitToWidth(std::string_view line, int columns);

}  // namespace dslaunch
