// Makes the tag that precedes each line of a rank's output, on the terminal and wherever lines of
// several ranks are mixed.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// The format of tags. It follows torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE if that variable
// is set.
struct TagStyle {
  std::string tag_template;  // template of the tag; "[node:rank] " if empty
  std::string role;          // value of ${role_name}
  // True to omit tags on stdout if stdout is a pipe or a file, which programs may read as data
  // (predict).
  bool plain_stdout = false;
};

// Returns the tag of one rank. In a template, replaces ${role_name}, ${rank} and ${local_rank},
// also without braces, and replaces $$ by $. Unknown names are kept, as in Python's
// Template.safe_substitute.
std::string LineTag(const TagStyle& style, std::string_view node, int rank, int local_rank);

}  // namespace dslaunch
