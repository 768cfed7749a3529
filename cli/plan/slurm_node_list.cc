#include "cli/plan/slurm_node_list.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxQuotedBytes = 60;

Error WrongList(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

std::string Shown(std::string_view text) {
  return "'" + SanitizeForTerminal(text.substr(0, kMaxQuotedBytes)) +
         (text.size() > kMaxQuotedBytes ? "...'" : "'");
}

// Removes the text up to the next comma outside of brackets from `list` and returns it; nullopt if
// the brackets do not match.
std::optional<std::string_view> TakeExpression(std::string_view& list) {
  bool inside = false;
  size_t end = 0;
  for (; end < list.size(); ++end) {
    if (list[end] == '[' && inside) return std::nullopt;
    if (list[end] == ']' && !inside) return std::nullopt;
    if (list[end] == '[') inside = true;
    if (list[end] == ']') inside = false;
    if (list[end] == ',' && !inside) break;
  }
  if (inside) return std::nullopt;
  const std::string_view expression = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return expression;
}

// A bound of a range of numbers. Leading zeros are part of the name, so `width` counts them.
struct Bound {
  size_t value = 0;
  size_t width = 0;
};

std::optional<Bound> ReadBound(std::string_view digits) {
  Bound bound;
  bound.width = digits.size();
  const auto [end, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), bound.value);
  const bool whole = status == std::errc() && end == digits.data() + digits.size();
  return whole ? std::optional(bound) : std::nullopt;
}

// Expands the text between brackets, such as "001-003,007".
Result<std::vector<std::string>> ExpandRanges(std::string_view ranges) {
  std::vector<std::string> numbers;
  while (true) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    const size_t dash = std::min(range.find('-'), range.size());
    const std::optional<Bound> first = ReadBound(range.substr(0, dash));
    const std::optional<Bound> last =
        dash == range.size() ? first : ReadBound(range.substr(dash + 1));
    if (!first || !last || last->value < first->value)
      return WrongList(Shown(range) + " is not a range of numbers such as 001-016");
    if (last->value - first->value >= kMaxListedNodes - numbers.size())
      return WrongList(Shown(range) + " stands for too many nodes");
    const size_t more = last->value - first->value;  // avoids last->value + 1, which may overflow
    for (size_t i = 0; i <= more; ++i) {
      const std::string digits = std::to_string(first->value + i);
      numbers.push_back(std::string(first->width - std::min(first->width, digits.size()), '0') +
                        digits);
    }
    if (range.size() == ranges.size()) return numbers;
    ranges.remove_prefix(range.size() + 1);
  }
}

// Expands an expression such as "gpu[1-2]-ib[0-1]"; the last brackets vary fastest.
Result<std::vector<std::string>> ExpandExpression(std::string_view expression) {
  std::vector<std::string> names = {""};
  while (!expression.empty()) {
    const size_t open = std::min(expression.find('['), expression.size());
    for (std::string& name : names) name += expression.substr(0, open);
    expression.remove_prefix(open);
    if (expression.empty()) break;
    const size_t close = expression.find(']');
    DSL_TRY_ASSIGN(const std::vector<std::string> numbers,
                   ExpandRanges(expression.substr(1, close - 1)));
    if (numbers.size() > kMaxListedNodes / names.size())
      return WrongList(Shown(expression) + " stands for too many nodes");
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    expression.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> ExpandNodeList(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::optional<std::string_view> expression = TakeExpression(list);
    if (!expression) return WrongList("the brackets in " + Shown(list) + " do not match");
    if (expression->empty()) return WrongList("a name is missing next to a comma");
    DSL_TRY_ASSIGN(std::vector<std::string> more, ExpandExpression(*expression));
    if (more.size() > kMaxListedNodes - names.size())
      return WrongList(Shown(*expression) + " stands for too many nodes");
    names.insert(names.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  }
  return names;
}

}  // namespace dslaunch
