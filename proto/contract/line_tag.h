// Makes the tag before each line of a rank's output, for the terminal and for all places where
// lines of several ranks are mixed.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// The format of tags. It follows torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE if that is set.
struct TagStyle {
  std::string tag_template;  // template of the tag; empty: "[node:rank] "
  std::string role;          // value of ${role_name}
  // True to omit tags on stdout if stdout is a pipe or a file, where it is data (predict).
  bool plain_stdout = false;
};

// Returns the tag of one rank. In a template, replaces ${role_name}, ${rank} and ${local_rank},
// also without braces, and replaces $$ by $. Unknown names are kept, as by Python's
// Template.safe_substitute.
std::string LineTag(const TagStyle& style, std::string_view node, int rank, int local_rank);

}  // namespace dslaunch
