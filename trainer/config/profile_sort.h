// The orders in which a profile's table of operators can be sorted.
#pragma once

#include <cstddef>

namespace dslaunch {

enum class ProfileSort { kSelfTime, kTotalTime, kDeviceTime, kMemory, kCalls };

// run.profile.sort_by, in the order of ProfileSort.
inline constexpr const char* kProfileSorts[] = {"self_time", "total_time", "device_time", "memory",
                                                "calls"};

constexpr const char* ProfileSortName(ProfileSort sort) {
  return kProfileSorts[static_cast<size_t>(sort)];
}

}  // namespace dslaunch
