// A rank's failure as text for the other ranks, so that all of them throw the same error if only
// one has seen the reason. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch {

std::string FormatFailure(const TrainError& failure);

// Runs `action`. Returns "", or FormatFailure of the exception that it throws. For actions whose
// result other ranks wait for.
std::string FailureOf(const std::function<void()>& action);

// Throws the failure in `text`, naming `rank`, if `text` is FormatFailure's; does nothing if it is
// another JSON object.
void ThrowIfFailure(const std::string& text, int rank);

// Throws the first failure, if there is one, naming its rank unless all ranks have the same.
// `failures` has an entry for each rank: FormatFailure's text, or "".
void ThrowFirstFailure(const std::vector<std::string>& failures);

}  // namespace dslaunch
