// Looks up LibTorch operators that this library has registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace dslaunch {

// Returns the operator `name`, such as "dslaunch::rms_norm", whose kernel has the type `Signature`.
// The lookup takes time, so callers should keep the result. Throws c10::Error if there is no such
// operator.
template <typename Signature>
c10::TypedOperatorHandle<Signature> NamedOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace dslaunch
