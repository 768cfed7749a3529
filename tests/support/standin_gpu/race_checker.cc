#include "tests/support/standin_gpu/race_checker.h"

namespace dslaunch::standin {

std::vector<Access> AccessLog::Add(const Access& access, const Clock& before) {
  std::vector<Access> conflicts;
  std::erase_if(accesses_, [&](const Access& earlier) {
    const bool overlaps = earlier.begin < access.end && access.begin < earlier.end;
    if (!overlaps || !(access.write || earlier.write)) return false;
    if (!earlier.IsBefore(before)) conflicts.push_back(earlier);
    // Later accesses that are ordered after this write are also ordered after the accesses that it
    // covers, so those can be dropped.
    return access.write && access.begin <= earlier.begin && earlier.end <= access.end;
  });
  const auto same = std::ranges::find_if(accesses_, [&](const Access& earlier) {
    return earlier.stream == access.stream && earlier.write == access.write &&
           earlier.begin == access.begin && earlier.end == access.end;
  });
  if (same == accesses_.end()) {
    accesses_.push_back(access);
  } else {
    *same = access;
  }
  return conflicts;
}

std::string StreamName(int stream) {
  return "stream " + std::to_string(stream % kStreamsPerDevice) + " of device " +
         std::to_string(stream / kStreamsPerDevice);
}

std::string DescribeRace(const Access& later, const Access& earlier) {
  return later.what + " in " + StreamName(later.stream) + (later.write ? " writes" : " reads") +
         " what " + earlier.what + " in " + StreamName(earlier.stream) +
         (earlier.write ? " writes" : " reads") + ", without having waited for it";
}

}  // namespace dslaunch::standin
