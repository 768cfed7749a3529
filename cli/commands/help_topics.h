// Implements `dslaunch help TOPIC`, which prints the pages of docs/ that are embedded in the
// program. All functions are pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct HelpPage {
  std::string_view topic;  // name of the file without its suffix, such as "launching"
  std::string_view text;   // content of the page in Markdown
};

// Returns the pages in the order of the list of topics. The function is generated from docs/ when
// dslaunch is built.
const std::vector<HelpPage>& HelpPages();

// Returns the output of `dslaunch help ...`, wrapped at `width` columns; `words` begins with
// "help". Without a topic, returns the list of topics. For an unknown topic, returns kUsage with
// the most similar topic.
Result<std::string> HelpTopicText(const std::vector<std::string>& words, size_t width);

}  // namespace dslaunch
