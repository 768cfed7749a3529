// By what a profile's table of operators is sorted.
#pragma once

namespace dslaunch {

enum class ProfileSort { kSelfTime, kTotalTime, kDeviceTime, kMemory, kCalls };

// run.profile.sort_by
constexpr const char* ProfileSortName(ProfileSort sort) {
  switch (sort) {
    case ProfileSort::kSelfTime:
      return "self_time";
    case ProfileSort::kTotalTime:
      return "total_time";
    case ProfileSort::kDeviceTime:
      return "device_time";
    case ProfileSort::kMemory:
      return "memory";
    case ProfileSort::kCalls:
      return "calls";
  }
  return "";
}

}  // namespace dslaunch
