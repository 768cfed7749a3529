// Threads, where there may be none left.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errno_text.h"
#include "base/error.h"

namespace dslaunch {

// std::thread's constructor without its exception: kUnavailable, with the limit that is reached.
// `purpose`: "to connect to node 'node7'".
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
