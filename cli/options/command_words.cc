#include "cli/options/command_words.h"

#include <algorithm>
#include <vector>

#include "base/suggest.h"
#include "cli/options/option_values.h"

namespace dslaunch {

std::string WithUnderscores(std::string word) {
  if (!word.starts_with("--")) return word;
  const size_t end = std::min(word.find('='), word.size());
  std::replace(word.begin() + 2, word.begin() + static_cast<std::ptrdiff_t>(end), '-', '_');
  return word;
}

std::string DescribeExtra(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back(known);
  }
  const std::string extra = app.remaining().front();
  const size_t begin = std::min(extra.find_first_not_of('-'), extra.size());
  if (begin == 0) return "takes no further argument " + Quoted(extra);
  const std::string near = Nearest(extra.substr(begin), names);
  if (near.empty()) return "option " + Quoted(extra) + " is not known";
  return "unknown option " + Quoted(extra) + ", did you mean --" + near + "?";
}

}  // namespace dslaunch
