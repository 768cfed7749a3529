// `dslaunch help TOPIC`: the pages of docs/, which are part of the program. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct HelpPage {
  std::string_view topic;  // "launching": the file's name
  std::string_view text;   // Markdown
};

// In the order in which the topics are listed. Made from docs/ when dslaunch is built.
const std::vector<HelpPage>& HelpPages();

// What `dslaunch help ...` prints, in lines of `width` columns; `words` begins with "help". Without
// a topic, the list of topics. An unknown topic is kUsage, with the nearest one.
Result<std::string> HelpTopicText(const std::vector<std::string>& words, size_t width);

}  // namespace dslaunch
