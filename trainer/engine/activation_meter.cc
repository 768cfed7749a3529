#include "trainer/engine/activation_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <unordered_map>

namespace dslaunch {
namespace {

constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;

}  // namespace

// Receives the reports of LibTorch's allocators. Occupies the profiler's thread-local slot.
class ActivationMeter::Reporter : public c10::MemoryReportingInfoBase,
                                  public std::enable_shared_from_this<Reporter> {
 public:
  // Counts a free only if this thread allocated the memory. Other threads allocate the batches that
  // they load.
  void reportMemoryUsage(void* pointer, int64_t alloc_size, size_t, size_t, c10::Device) override {
    if (alloc_size > 0) {
      // The address still has a size if another thread freed the previous block there, because that
      // free was not reported to this thread. The old size is subtracted now.
      int64_t& bytes = live_[pointer];
      live_bytes_ += alloc_size - bytes;
      bytes = alloc_size;
      peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    } else if (const auto found = live_.find(pointer); found != live_.end()) {
      live_bytes_ -= found->second;
      live_.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  static Reporter* InThisThread() {
    return dynamic_cast<Reporter*>(c10::ThreadLocalDebugInfo::get(kKind));
  }

  std::unordered_map<void*, int64_t> live_;
  bool missed_some_ = false;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

ActivationMeter::ActivationMeter() {
  if (Reporter* first = Reporter::InThisThread()) {
    reporter_ = first->shared_from_this();
    return;
  }
  reporter_ = std::make_shared<Reporter>();
  counts_ = c10::ThreadLocalDebugInfo::get(kKind) == nullptr;
  if (counts_) c10::ThreadLocalDebugInfo::_push(kKind, reporter_);
}

ActivationMeter::~ActivationMeter() {
  if (counts_ && Reporter::InThisThread() == reporter_.get()) {
    c10::ThreadLocalDebugInfo::_pop(kKind);
  }
}

ActivationMeter::Pause::Pause() {
  if (Reporter* found = Reporter::InThisThread()) {
    reporter_ = found->shared_from_this();
    reporter_->missed_some_ = true;
    c10::ThreadLocalDebugInfo::_pop(kKind);
  }
}

ActivationMeter::Pause::~Pause() {
  if (reporter_) c10::ThreadLocalDebugInfo::_push(kKind, reporter_);
}

bool ActivationMeter::AnyInThisThread() { return Reporter::InThisThread() != nullptr; }

bool ActivationMeter::counted_all() const { return !reporter_->missed_some_; }
int64_t ActivationMeter::live_bytes() const { return reporter_->live_bytes_; }
int64_t ActivationMeter::peak_bytes() const { return reporter_->peak_bytes_; }

}  // namespace dslaunch
