#include "proto/wire/lease.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace dslaunch {
BootClock::time_point BootClock::now() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return time_point(std::chrono::duration_cast<duration>(std::chrono::seconds(time.tv_sec) +
                                                         std::chrono::nanoseconds(time.tv_nsec)));
}

void Lease::SetTerms(const Terms& terms) {
  const MutexLock lock(mutex_);
  terms_ = terms;
  renewed_ = std::min(renewed_, last_seen_ + terms.prompt);
}

void Lease::Begin(Time now) {
  const MutexLock lock(mutex_);
  begun_ = last_seen_ = renewed_ = now;
  caught_up_ = false;
}

uint64_t Lease::Renew(std::optional<uint64_t> last_seen_us, Time now) {
  const MutexLock lock(mutex_);
  const Time heard =
      last_seen_us ? std::min(Time(ReportedMicroseconds(*last_seen_us)), now) : begun_;
  last_seen_ = std::max(last_seen_, heard);
  const Time from = std::min(now, heard + terms_.prompt);
  if (from > renewed_) {
    renewed_ = from;
    caught_up_ = false;
  }
  return static_cast<uint64_t>(now.time_since_epoch().count());
}

Lease::Time Lease::renewed() const {
  const MutexLock lock(mutex_);
  return renewed_;
}

std::optional<milliseconds> Lease::Left(Time now) {
  const MutexLock lock(mutex_);
  const bool is_late = now - std::exchange(looked_, now) > terms_.look_every + kStall;
  if (terms_.length.count() == 0) return std::nullopt;
  const Time end = renewed_ + terms_.length;
  if (is_late && now >= end && !std::exchange(caught_up_, true)) catch_up_until_ = now + kCatchUp;
  const auto left = std::chrono::ceil<milliseconds>(std::max(end, catch_up_until_) - now);
  return std::max(left, milliseconds(0));
}

}  // namespace dslaunch
