// `dslaunch help TOPIC`: the pages of docs/, which are embedded in the program. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct HelpPage {
  std::string_view topic;  // name of the file without its suffix: "launching"
  std::string_view text;   // Markdown
};

// Returns the pages in the order of the list of topics. Generated from docs/ when dslaunch is
// built.
const std::vector<HelpPage>& HelpPages();

// Returns the output of `dslaunch help ...`, wrapped at `width` columns; `words` begins with
// "help". Without a topic, returns the list of topics. An unknown topic is kUsage, and the error
// suggests the most similar one.
Result<std::string> HelpTopicText(const std::vector<std::string>& words, size_t width);

}  // namespace dslaunch
