// Converts a rank's failure to text for the other ranks, so that all ranks throw the same error
// even if only one rank has found the reason. Performs no I/O.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Returns a JSON object with the code and the message of `failure`.
std::string FormatFailure(const TrainError& failure);

// Runs `action`. Returns FormatFailure of the exception that `action` throws, or "" if it throws
// none. Use it for actions whose result other ranks wait for.
std::string FailureOf(const std::function<void()>& action);

// Throws the failure in `text`, naming `rank`, if FormatFailure made `text`. Does nothing if `text`
// is another JSON object.
void ThrowIfFailure(const std::string& text, int rank);

// Throws the first failure, naming its rank unless all ranks have the same failure. Does nothing if
// no rank failed. `failures` has an entry for each rank: the text of FormatFailure, or "".
void ThrowFirstFailure(const std::vector<std::string>& failures);

}  // namespace dslaunch
