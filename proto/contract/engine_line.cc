#include "proto/contract/engine_line.h"

#include <array>
#include <utility>

namespace dslaunch {
namespace {

constexpr std::array<std::pair<EngineLine::Kind, std::string_view>, 3> kWords = {{
    {EngineLine::Kind::kDial, "DSLAUNCH-DIAL "},
    {EngineLine::Kind::kFailed, "DSLAUNCH-FAILED "},
    {EngineLine::Kind::kEnded, "DSLAUNCH-ENDED "},
}};

}  // namespace

std::string FormatEngineLine(const EngineLine& line, std::string_view nonce) {
  std::string text;
  for (const auto& [kind, word] : kWords) {
    if (kind == line.kind) text = word;
  }
  return text.append(nonce) + " " + line.place + " " + line.text + "\n";
}

std::optional<EngineLine> ReadEngineLine(std::string_view line, std::string_view nonce) {
  for (const auto& [kind, word] : kWords) {
    const std::string start = std::string(word).append(nonce) + " ";
    const size_t at = line.find(start);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at + start.size());
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos || space == 0) return std::nullopt;
    std::string_view text = rest.substr(space + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    return EngineLine{kind, std::string(rest.substr(0, space)), std::string(text)};
  }
  return std::nullopt;
}

}  // namespace dslaunch
