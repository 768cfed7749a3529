// What the functions of this folder demand of the code they try.
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

// One line that can be shown anywhere, however long what it is about may be.
inline void RequireOneLine(std::string_view message) {
  constexpr size_t kMaxMessageBytes = 2000;
  Require(!message.empty() && message.size() < kMaxMessageBytes, "a refusal is not one line");
  Require(message == SanitizeForTerminal(message), "a refusal could steer a terminal");
}

// Bad input is refused as such.
inline void RequireRefusal(const Error& error) {
  Require(error.code == ExitCode::kBadInput || error.code == ExitCode::kUsage,
          "bad content is not refused as bad input");
  RequireOneLine(error.message);
}

// Whether it was taken; a refusal must be a good one.
template <class T>
bool IsTaken(const Result<T>& result) {
  if (!result.ok()) RequireRefusal(result.error());
  return result.ok();
}

}  // namespace dslaunch
