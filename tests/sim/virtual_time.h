// Implements the virtual clock: tasks with their times, and processes that may be stopped
// meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/deadline.h"
#include "tests/sim/task.h"

namespace dslaunch::sim {

// A machine's steady clock, which may be ahead of other machines' clocks.
struct MachineClock {
  int64_t ahead_ms = 0;
};

// A process that can be stopped and resumed, or that has ended (`gone`). Must outlive its Timeline.
struct Process {
  bool gone = false;
  int64_t stopped_until = 0;
  std::deque<Task> backlog;  // tasks to run when the process resumes, in order
};

class Timeline {
 public:
  // Time of a task that never runs.
  static constexpr int64_t kNever = INT64_MAX;

  int64_t now() const { return now_; }
  Clock::time_point NowOn(const MachineClock& clock) const {
    return Clock::time_point(milliseconds(now_ + clock.ahead_ms));
  }

  // Plans a task. Tasks of the same time run in the order in which they were planned. If `process`
  // is gone, the task is dropped; if it is stopped, the task runs when it resumes. With nullptr the
  // task always runs.
  void At(int64_t when, Process* process, Task task);
  void After(int64_t delay, Process* process, Task task) {
    At(now_ + delay, process, std::move(task));
  }
  // Runs `task` now; later if the process is stopped; never if it is gone.
  void Do(Process& process, Task task);
  void Stop(Process& process, int64_t until);

  // Runs the next planned task. Returns false if no task is planned.
  bool Step();

 private:
  struct Entry {
    int64_t at;
    uint64_t order;
    uint32_t slot;
    bool operator<(const Entry& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Slot {
    Process* process = nullptr;
    Task task;
  };

  void GoOn(Process& process);

  int64_t now_ = 0;
  uint64_t order_ = 0;
  std::vector<Entry> heap_;
  std::deque<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace dslaunch::sim
