// The tag before each line of a rank's output, on the terminal and wherever lines of several ranks
// are mixed.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// The format of tags; follows torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE if that is set.
struct TagStyle {
  std::string tag_template;   // empty: "[node:rank] "
  std::string role;           // ${role_name}
  bool plain_stdout = false;  // no tags on stdout in pipes and files, where it is data (predict)
};

// Returns the tag of one rank. In a template, replaces ${role_name}, ${rank} and ${local_rank}
// (also without braces), and $$ by $; unknown names stay, as with Python's
// Template.safe_substitute.
std::string LineTag(const TagStyle& style, std::string_view node, int rank, int local_rank);

}  // namespace dslaunch
