// How many columns of a terminal a line takes.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Of a line that is made safe for a terminal (UTF-8, colours and nothing else that steers).
int ShownWidth(std::string_view line);

// The same line cut to what fits on a terminal line of `columns`; colours end with it. The last
// column stays free: writing there makes some terminals wrap.
std::string FitToWidth(std::string_view line, int columns);

}  // namespace dslaunch
