// Ends the process after an error that cannot be thrown, because the thread that should throw it
// waits for a device that makes no progress.
#pragma once

#include <functional>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Sets the function that ExitByFailure calls in this process. `exit` must not return. Call it
// before starting threads.
void SetFailureExit(std::function<void(const TrainError&)> exit);

// Ends the process immediately. By default, prints the message on stderr and exits with the error's
// code. May be called on any thread.
[[noreturn]] void ExitByFailure(const TrainError& error);

}  // namespace dslaunch
