// Defines texts in a rank's error that indicate that another rank is the cause. The trainer writes
// these texts; the agent and the parent process of Spawn then look for the cause in another rank.
// Exit codes are not sufficient: 69 may also mean that a GPU is out of memory, and 75 that a lock
// was taken.
#pragma once

#include <string_view>

namespace dslaunch {

inline constexpr std::string_view kPeerLostText = "another rank was lost";
inline constexpr std::string_view kPeerLateText = "another rank did not answer in time";

inline bool ReportsPeerFailure(std::string_view error) {
  return error.find(kPeerLostText) != std::string_view::npos ||
         error.find(kPeerLateText) != std::string_view::npos;
}

}  // namespace dslaunch
