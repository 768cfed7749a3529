#include "trainer/text/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"

namespace dslaunch {

void ForEachLine(std::string_view content, int64_t first,
                 const std::function<void(std::string_view line, int64_t number)>& use) {
  int64_t number = first;
  for (size_t at = 0; at < content.size(); ++number) {
    const size_t end = std::min(content.find('\n', at), content.size());
    use(content.substr(at, end - at), number);
    at = end + 1;
  }
}

bool IsBlankLine(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

const std::string& TextUnder(const char* key, const nlohmann::json& object,
                             const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    RefuseInput(place + " has no text under the key \"" + key + "\"");
  }
  return found->get_ref<const std::string&>();
}

}  // namespace dslaunch
