#include "proto/contract/line_tag.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dslaunch {
namespace {

bool IsNameStart(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNamePart(char c) { return IsNameStart(c) || (c >= '0' && c <= '9'); }

}  // namespace

std::string LineTag(const TagStyle& style, std::string_view node, int rank, int local_rank) {
  if (style.tag_template.empty())
    return "[" + std::string(node) + ":" + std::to_string(rank) + "] ";
  const std::array<std::pair<std::string_view, std::string>, 3> values = {{
      {"role_name", style.role},
      {"rank", std::to_string(rank)},
      {"local_rank", std::to_string(local_rank)},
  }};
  std::string tag;
  std::string_view rest = style.tag_template;
  while (!rest.empty()) {
    const size_t dollar = std::min(rest.find('$'), rest.size());
    tag += rest.substr(0, dollar);
    rest.remove_prefix(dollar);
    if (rest.empty()) break;
    if (rest.starts_with("$$")) {
      tag += '$';
      rest.remove_prefix(2);
      continue;
    }
    const bool braced = rest.starts_with("${");
    const size_t begin = braced ? 2 : 1;
    size_t end = begin;
    while (end < rest.size() && (end == begin ? IsNameStart(rest[end]) : IsNamePart(rest[end])))
      ++end;
    const auto value = std::ranges::find(values, rest.substr(begin, end - begin),
                                         &decltype(values)::value_type::first);
    const bool closed = !braced || (end < rest.size() && rest[end] == '}');
    const bool known = value != values.end() && closed;
    const size_t size = known ? end + (braced ? 1 : 0) : 1;
    tag += known ? std::string_view(value->second) : rest.substr(0, size);
    rest.remove_prefix(size);
  }
  return tag;
}

}  // namespace dslaunch
