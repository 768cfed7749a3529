// How a rank's error says that not this rank but another one is the cause. The trainer writes it;
// the agent, and the parent process of Spawn, then look for the cause elsewhere. Exit codes do not
// tell: 69 is also that of a GPU without memory, 75 that of a lock that was not free.
#pragma once

#include <string_view>

namespace dslaunch {

inline constexpr std::string_view kPeerLostText = "another rank was lost";
inline constexpr std::string_view kPeerLateText = "another rank did not answer in time";

inline bool SaysPeerFailed(std::string_view error) {
  return error.find(kPeerLostText) != std::string_view::npos ||
         error.find(kPeerLateText) != std::string_view::npos;
}

}  // namespace dslaunch
