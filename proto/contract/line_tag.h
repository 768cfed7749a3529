// What stands before each line of a rank's output, on the terminal and wherever lines of several
// ranks meet.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// How lines are tagged: as torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE says, where it is set.
struct TagStyle {
  std::string tag_template;   // empty: "[node:rank] "
  std::string role;           // ${role_name}
  bool plain_stdout = false;  // stdout has no tags in pipes and files: it is data (predict)
};

// The tag of one rank. In a template ${role_name}, ${rank} and ${local_rank} are replaced, also
// without braces, and $$ is $; what it does not know stays (Python's Template.safe_substitute).
std::string LineTag(const TagStyle& style, std::string_view node, int rank, int local_rank);

}  // namespace dslaunch
