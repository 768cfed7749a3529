#include "agent/host/script_options.h"

#include <cctype>
#include <vector>

namespace dslaunch {
namespace {

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
}

// A string literal of Python. A literal without closing quotes ends with the line or the text.
struct Literal {
  std::string_view content;
  size_t end = 0;
};

Literal ReadLiteral(std::string_view source, size_t at) {
  const char quote = source[at];
  const std::string triple(3, quote);
  const bool is_long = source.substr(at, 3) == triple;
  const size_t begin = at + (is_long ? 3 : 1);
  for (size_t i = begin; i < source.size(); ++i) {
    if (source[i] == '\\') {
      ++i;
    } else if (is_long ? source.substr(i, 3) == triple : source[i] == quote) {
      return {source.substr(begin, i - begin), i + (is_long ? 3 : 1)};
    } else if (!is_long && source[i] == '\n') {
      return {{}, i};
    }
  }
  return {{}, source.size()};
}

}  // namespace

std::string LocalRankOption(std::string_view source) {
  std::vector<bool> in_call;  // whether each open bracket begins the arguments of a call
  char before = '\n';         // last character outside of blanks, strings and comments
  for (size_t i = 0; i < source.size();) {
    const char c = source[i];
    if (c == '#') {
      const size_t end = source.find('\n', i);
      i = end == std::string_view::npos ? source.size() : end;
    } else if (c == '"' || c == '\'') {
      const Literal literal = ReadLiteral(source, i);
      const bool is_argument =
          !in_call.empty() && in_call.back() && (before == '(' || before == ',');
      if (is_argument && (literal.content == "--local_rank" || literal.content == "--local-rank"))
        return std::string(literal.content);
      i = literal.end;
      before = '"';
    } else {
      // A parenthesis begins a call only directly after a word or ')', so `in (` and `return (`
      // begin none.
      if (c == '(' || c == '[' || c == '{')
        in_call.push_back(c == '(' && i > 0 && (IsWordChar(source[i - 1]) || source[i - 1] == ')'));
      if ((c == ')' || c == ']' || c == '}') && !in_call.empty()) in_call.pop_back();
      if (!std::isspace(static_cast<unsigned char>(c))) before = c;
      ++i;
    }
  }
  return "";
}

}  // namespace dslaunch
