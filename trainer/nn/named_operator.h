// Looks up the operators that this library registers with LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace dslaunch {

// Returns the operator `name` ("dslaunch::rms_norm"), whose kernel has the type `Signature`. Looks
// it up each time, so callers keep it. Throws c10::Error if there is none.
template <typename Signature>
c10::TypedOperatorHandle<Signature> NamedOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace dslaunch
