// Names that profiles and their settings use.
#pragma once

#include <cstddef>

namespace dslaunch {

// The orders in which a profile's table of operators can be sorted.
enum class ProfileSort { kSelfTime, kTotalTime, kDeviceTime, kMemory, kCalls };

// run.profile.sort_by, in the order of ProfileSort.
inline constexpr const char* kProfileSorts[] = {"self_time", "total_time", "device_time", "memory",
                                                "calls"};

constexpr const char* ProfileSortName(ProfileSort sort) {
  return kProfileSorts[static_cast<size_t>(sort)];
}

// The kinds of exchanges that profiles distinguish, as comms_logger.prof_ops names them.
inline constexpr const char* kCommunicationKinds[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
    "gather",     "scatter",    "send",           "recv",       "barrier"};

}  // namespace dslaunch
