// Starts threads and returns an error when the limit of threads is reached.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errno_text.h"
#include "base/error.h"

namespace dslaunch {

// Starts a thread as std::thread's constructor does, but returns kUnavailable with the exceeded
// limit instead of throwing. `purpose` completes the message, such as "to connect to node 'node7'".
template <class Run>
Result<std::thread> StartThread(Run run, const std::string& purpose) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return Error{ExitCode::kUnavailable,
                 "cannot start a thread " + purpose + ": " + ErrnoText(error.code().value())};
  }
}

}  // namespace dslaunch
