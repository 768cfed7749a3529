// Represents errors as values, for the launcher and for the code that launcher and trainer share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/exit_code.h"

namespace dslaunch {

// A failure and the exit code for it. `message` is one sentence for a user: what failed, where
// (file:line, node, rank), and a hint.
struct Error {
  ExitCode code = ExitCode::kInternal;
  std::string message;
};

// A value or an Error. Owns its content. Thread-compatible.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by intent
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by intent

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Returns the value. Precondition: ok().
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  // Returns the error. Precondition: !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by intent

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace dslaunch

#define DSL_CONCAT_INNER(a, b) a##b
#define DSL_CONCAT(a, b) DSL_CONCAT_INNER(a, b)

// Returns from the enclosing function with the error of `expression` if the expression failed.
#define DSL_TRY(expression)                                                          \
  do {                                                                               \
    if (auto dsl_result = (expression); !dsl_result.ok()) return dsl_result.error(); \
  } while (false)

// Declares a variable with the value of an expression, or returns from the enclosing function with
// the expression's error: DSL_TRY_ASSIGN(auto x, F()).
#define DSL_TRY_ASSIGN(declaration, expression) \
  DSL_TRY_ASSIGN_INNER(DSL_CONCAT(dsl_result_, __LINE__), declaration, expression)
#define DSL_TRY_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.error();                    \
  declaration = *std::move(result)
