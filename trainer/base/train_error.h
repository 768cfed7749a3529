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

// Returns the error for the failure (PeerLost) or delay (PeerLate) of another rank. `detail`
// describes the observation of this rank.
inline TrainError PeerLost(const std::string& detail) {
  return {ExitCode::kUnavailable, std::string(kPeerLostText) +
                                      ", so this rank stops too; see the error of that rank (" +
                                      detail + ")"};
}
inline TrainError PeerLate(const std::string& detail) {
  return {ExitCode::kTimedOut, std::string(kPeerLateText) + " (" + detail + ")"};
}

}  // namespace dslaunch
