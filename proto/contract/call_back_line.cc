#include "proto/contract/call_back_line.h"

#include <array>
#include <utility>

namespace dslaunch {
namespace {

constexpr std::array<std::pair<CallBackLine::Kind, std::string_view>, 3> kWords = {{
    {CallBackLine::Kind::kKey, "DSLAUNCH-KEY "},
    {CallBackLine::Kind::kFailed, "DSLAUNCH-FAILED "},
    {CallBackLine::Kind::kEnded, "DSLAUNCH-ENDED "},
}};

}  // namespace

std::string FormatCallBackLine(const CallBackLine& line, std::string_view nonce) {
  std::string text;
  for (const auto& [kind, word] : kWords) {
    if (kind == line.kind) text = word;
  }
  return text.append(nonce) + " " + line.place + " " + line.text + "\n";
}

std::optional<CallBackLine> ReadCallBackLine(std::string_view line, std::string_view nonce) {
  for (const auto& [kind, word] : kWords) {
    const std::string start = std::string(word).append(nonce) + " ";
    const size_t at = line.find(start);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at + start.size());
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos || space == 0) return std::nullopt;
    std::string_view text = rest.substr(space + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    return CallBackLine{kind, std::string(rest.substr(0, space)), std::string(text)};
  }
  return std::nullopt;
}

}  // namespace dslaunch
