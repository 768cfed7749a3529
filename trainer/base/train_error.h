// Creates and throws the trainer's exception. It may be thrown anywhere, and is caught once, in
// main, which exits with the exception's code.
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

// Returns the error kUnavailable for the loss of another rank. `detail` describes what this rank
// has observed.
inline TrainError PeerLost(const std::string& detail) {
  return {ExitCode::kUnavailable, std::string(kPeerLostText) +
                                      ", so this rank stops too; see the error of that rank (" +
                                      detail + ")"};
}
// Returns the error kTimedOut for another rank that did not answer in time. `detail` describes what
// this rank has observed.
inline TrainError PeerLate(const std::string& detail) {
  return {ExitCode::kTimedOut, std::string(kPeerLateText) + " (" + detail + ")"};
}

}  // namespace dslaunch
