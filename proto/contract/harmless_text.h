// Text from programs, before it goes to a terminal or into a message.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// `line` without what could steer a terminal: escape sequences and control characters go, tabs
// stay, bytes that are no UTF-8 become U+FFFD.
std::string Harmless(std::string_view line);

}  // namespace dslaunch
