// Represents errors as values, for the launcher half and for the code that both halves share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/exit_code.h"

namespace dslaunch {

// A failure and the exit code to which it leads. `message` is one sentence for a user: what failed,
// where (file:line, node, rank), and a hint.
struct Error {
  ExitCode code = ExitCode::kInternal;
  std::string message;
};

// A value or an Error. Thread-compatible, owns its content.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by intent
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by intent

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // These operators return the value. Precondition: ok().
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

// Returns the error of `expression` from the enclosing function, if it has one.
#define DSL_TRY(expression)                                                          \
  do {                                                                               \
    if (auto dsl_result = (expression); !dsl_result.ok()) return dsl_result.error(); \
  } while (false)

// DSL_TRY_ASSIGN(auto x, F()) declares x with the value of F(), or returns F()'s error from the
// enclosing function.
#define DSL_TRY_ASSIGN(declaration, expression) \
  DSL_TRY_ASSIGN_INNER(DSL_CONCAT(dsl_result_, __LINE__), declaration, expression)
#define DSL_TRY_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.error();                    \
  declaration = *std::move(result)
