#include "trainer/engine/activation_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace dslaunch {

// LibTorch's allocators report to whatever the thread has in the profiler's place.
class ActivationMeter::Reporter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device) override {
    live_bytes_ += alloc_size;
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live_bytes_ = 0;
};

ActivationMeter::ActivationMeter() : reporter_(std::make_shared<Reporter>()) {
  constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;
  counts_ = c10::ThreadLocalDebugInfo::get(kKind) == nullptr;
  if (counts_) c10::ThreadLocalDebugInfo::_push(kKind, reporter_);
}

ActivationMeter::~ActivationMeter() {
  constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;
  if (counts_ && c10::ThreadLocalDebugInfo::get(kKind) == reporter_.get()) {
    c10::ThreadLocalDebugInfo::_pop(kKind);
  }
}

int64_t ActivationMeter::live_bytes() const { return reporter_->live_bytes_; }

}  // namespace dslaunch
