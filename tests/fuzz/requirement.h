// Defines properties that the tests of this folder require of the code under test.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text/sanitize.h"

namespace dslaunch {

inline void Require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Requires that the message is one line that is safe to print, however long the name in it is.
inline void RequireOneLine(std::string_view message) {
  constexpr size_t kMaxMessageBytes = 2000;
  Require(!message.empty() && message.size() < kMaxMessageBytes, "a refusal is not one line");
  Require(message == SanitizeForTerminal(message), "a refusal could steer a terminal");
}

// Requires that the error reports bad input or wrong use, in one line.
inline void RequireRefusal(const Error& error) {
  Require(error.code == ExitCode::kBadInput || error.code == ExitCode::kUsage,
          "bad content is not refused as bad input");
  RequireOneLine(error.message);
}

// Returns whether the input was accepted. A refusal must satisfy RequireRefusal.
template <class T>
bool IsTaken(const Result<T>& result) {
  if (!result.ok()) RequireRefusal(result.error());
  return result.ok();
}

}  // namespace dslaunch
