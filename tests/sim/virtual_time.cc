#include "tests/sim/virtual_time.h"

#include <algorithm>

namespace dslaunch::sim {

void Timeline::At(int64_t when, Process* process, Task task) {
  if (when == kNever) return;
  uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  slots_[slot].process = process;
  slots_[slot].task = std::move(task);
  heap_.push_back({std::max(when, now_), ++order_, slot});
  std::push_heap(heap_.begin(), heap_.end());
}

void Timeline::Do(Process& process, Task task) {
  if (process.gone) return;
  // Waiting tasks must run first, so that the order is kept.
  if (now_ < process.stopped_until || !process.backlog.empty())
    return process.backlog.push_back(std::move(task));
  task();
}

void Timeline::Stop(Process& process, int64_t until) {
  if (process.gone || until <= process.stopped_until) return;
  process.stopped_until = until;
  At(until, nullptr, [this, &process] { GoOn(process); });
}

void Timeline::GoOn(Process& process) {
  while (!process.gone && now_ >= process.stopped_until && !process.backlog.empty()) {
    Task task = std::move(process.backlog.front());
    task();
    // The task is removed only after the call, so that tasks that the call adds wait for their
    // turn.
    process.backlog.pop_front();
  }
  if (process.gone) process.backlog.clear();
}

bool Timeline::Step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end());
  const Entry entry = heap_.back();
  heap_.pop_back();
  now_ = entry.at;
  Process* const process = slots_[entry.slot].process;
  Task task = std::move(slots_[entry.slot].task);
  free_.push_back(entry.slot);
  process != nullptr ? Do(*process, std::move(task)) : task();
  return true;
}

}  // namespace dslaunch::sim
