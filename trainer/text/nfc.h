// Implements Unicode's normalization form C (UAX 15), with the data of the tokenizers package.
// Pure.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns `text` in normalization form C. Precondition: `text` is UTF-8.
std::string ToNfc(std::string_view text);

}  // namespace dslaunch
