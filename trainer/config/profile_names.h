// Defines the names that profiles and their settings use.
#pragma once

#include <cstddef>

namespace dslaunch {

// Orders in which a profile's table of operators can be sorted.
enum class ProfileSort { kSelfTime, kTotalTime, kDeviceTime, kMemory, kCalls };

// Values of run.profile.sort_by, in the order of ProfileSort.
inline constexpr const char* kProfileSorts[] = {"self_time", "total_time", "device_time", "memory",
                                                "calls"};

constexpr const char* ProfileSortName(ProfileSort sort) {
  return kProfileSorts[static_cast<size_t>(sort)];
}

// Kinds of exchanges that profiles distinguish, with the names of comms_logger.prof_ops.
inline constexpr const char* kCommunicationKinds[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
    "gather",     "scatter",    "send",           "recv",       "barrier"};

}  // namespace dslaunch
