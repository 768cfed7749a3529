// The end of a process by an error that cannot be thrown: the thread that would have to throw it
// waits for a device, and what it waits for never comes.
#pragma once

#include <functional>

#include "trainer/base/train_error.h"

namespace dslaunch {

// What ExitByFailure does; it must not return. Of the whole process. Call it before there are other
// threads.
void SetFailureExit(std::function<void(const TrainError&)> exit);

// From any thread. Unless SetFailureExit says otherwise, the message is a line on stderr, and the
// process ends at once with the error's code.
[[noreturn]] void ExitByFailure(const TrainError& error);

}  // namespace dslaunch
