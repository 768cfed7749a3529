// Helps to throw the trainer's exception. It may be thrown anywhere, and is caught once, in main,
// which exits with its code.
#pragma once

#include <string>

#include "base/exit_code.h"  // IWYU pragma: export
#include "dslaunch/error.h"  // IWYU pragma: export
#include "proto/contract/peer_failure.h"

namespace dslaunch {

// Throws TrainError kBadInput, for user input that cannot be used.
[[noreturn]] inline void RefuseInput(const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, problem);
}

// Return errors for a failure or delay of another rank. `detail` describes what this rank noticed.
inline TrainError PeerLost(const std::string& detail) {
  return {ExitCode::kUnavailable, std::string(kPeerLostText) +
                                      ", so this rank stops too; see the error of that rank (" +
                                      detail + ")"};
}
inline TrainError PeerLate(const std::string& detail) {
  return {ExitCode::kTimedOut, std::string(kPeerLateText) + " (" + detail + ")"};
}

}  // namespace dslaunch
