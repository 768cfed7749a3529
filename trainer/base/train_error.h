// The trainer's own exception, thrown anywhere and caught once, in main, with the codes that it
// carries.
#pragma once

#include <string>

#include "base/exit_code.h"  // IWYU pragma: export
#include "dslaunch/error.h"  // IWYU pragma: export
#include "proto/contract/peer_failure.h"

namespace dslaunch {

// Throws TrainError kBadInput: what a user gave cannot be done.
[[noreturn]] inline void RefuseInput(const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, problem);
}

// The errors of which another rank is the cause. `detail`: what this rank noticed.
inline TrainError PeerLost(const std::string& detail) {
  return {ExitCode::kUnavailable, std::string(kPeerLostText) +
                                      ", so this rank stops too; see the error of that rank (" +
                                      detail + ")"};
}
inline TrainError PeerLate(const std::string& detail) {
  return {ExitCode::kTimedOut, std::string(kPeerLateText) + " (" + detail + ")"};
}

}  // namespace dslaunch
