#include "trainer/device/time_spans.h"

#include "trainer/device/streams.h"

namespace dslaunch {
namespace {

std::shared_ptr<c10::Event> Marked(c10::Device device) {
  // BACKEND_DEFAULT makes the event record its time, which Seconds() reads.
  auto mark = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  mark->record(CurrentStream(device));
  return mark;
}

}  // namespace

void TimeSpans::Begin(c10::Device device) {
  device_ = device;
  open_ = true;
  if (device.is_cpu()) {
    start_ = Clock::now();
  } else {
    start_mark_ = Marked(device);
  }
}

void TimeSpans::End() {
  if (!std::exchange(open_, false)) return;
  if (device_.is_cpu()) {
    host_s_ += std::chrono::duration<double>(Clock::now() - start_).count();
  } else {
    marks_.emplace_back(std::move(start_mark_), Marked(device_));
  }
}

double TimeSpans::Seconds() const {
  double seconds = host_s_;
  for (const auto& [start, end] : marks_) {
    if (!end->query()) end->synchronize();
    seconds += start->elapsedTime(*end) / 1000;
  }
  return seconds;
}

}  // namespace dslaunch
