#include "agent/core/rank_progress.h"

#include <algorithm>
#include <chrono>

namespace dslaunch {
namespace {

using std::chrono::microseconds;

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kLongestS = 1e9;  // longest time that a status line may report, in seconds

uint64_t Microseconds(Clock::duration duration) {
  return static_cast<uint64_t>(
      std::max<microseconds::rep>(0, std::chrono::duration_cast<microseconds>(duration).count()));
}

}  // namespace

uint64_t ReportedTimeUs(double seconds) {
  return static_cast<uint64_t>(std::clamp(seconds, 0.0, kLongestS) * kMicrosecondsPerSecond);
}

void RollingMedian::Add(uint64_t value) { values_[count_++ % kValues] = value; }

uint64_t RollingMedian::Median() const {
  if (count_ == 0) return 0;
  auto sorted = values_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kValues));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

void RankProgressTracker::OnStatus(const StatusLine& line, Clock::time_point now) {
  if (line.event == StatusLine::Event::kWait) {
    exchange_ = line.exchange;
    waits_since_ = now - microseconds(ReportedTimeUs(line.waits_s));
    return;
  }
  exchange_.clear();
  if (line.event != StatusLine::Event::kStep) return;
  if (line.compute_s && *line.compute_s >= 0 && *line.compute_s < kLongestS)
    compute_us_.Add(ReportedTimeUs(*line.compute_s));
  if (step_ == line.step) return;
  // A program may report only every tenth step, so the time is divided by the number of steps. If
  // the program has restarted its count, the time is ignored.
  if (step_ && line.step > *step_)
    step_us_.Add(Microseconds(now - since_) / static_cast<uint64_t>(line.step - *step_));
  step_ = line.step;
  since_ = now;
}

std::optional<RankWait> RankProgressTracker::Wait(Clock::time_point now) const {
  if (exchange_.empty()) return std::nullopt;
  return RankWait{exchange_, std::chrono::duration_cast<milliseconds>(now - waits_since_)};
}

std::optional<pb::RankProgress> RankProgressTracker::Report(uint32_t rank,
                                                            Clock::time_point now) const {
  if (!step_) return std::nullopt;
  pb::RankProgress progress;
  progress.set_rank(rank);
  progress.set_step(static_cast<uint64_t>(*step_));
  progress.set_since_us(Microseconds(now - since_));
  progress.set_median_step_us(step_us_.Median());
  progress.set_median_compute_us(compute_us_.Median());
  progress.set_ended(ended_);
  return progress;
}

}  // namespace dslaunch
