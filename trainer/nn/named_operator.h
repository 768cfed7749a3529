// Looks up operators that this library registers with LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace dslaunch {

// Returns the operator `name`, such as "dslaunch::rms_norm", whose kernel has the type `Signature`.
// Each call is a lookup, so callers should keep the result. Throws c10::Error if there is no such
// operator.
template <typename Signature>
c10::TypedOperatorHandle<Signature> NamedOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace dslaunch
