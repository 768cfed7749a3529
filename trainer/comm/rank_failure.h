// Why a rank failed, as text that the other ranks of the program can read, so that all of them
// throw the same where one alone has seen the reason. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch {

std::string FormatFailure(const TrainError& failure);

// Empty, or FormatFailure of what `action` throws: where other ranks wait for this one's answer.
std::string FailureOf(const std::function<void()>& action);

// Throws the failure in `text`, naming `rank`, where it is FormatFailure's; does nothing where it
// is another JSON object.
void ThrowIfFailure(const std::string& text, int rank);

// `failures` has an entry for each rank: empty, or what FormatFailure gave. Throws the first
// failure where there is one, naming its rank unless all ranks say the same.
void ThrowFirstFailure(const std::vector<std::string>& failures);

}  // namespace dslaunch
