// The virtual clock: tasks with their times, and processes that may be stopped meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/deadline.h"
#include "tests/sim/task.h"

namespace dslaunch::sim {

// A machine's steady clock, which may run ahead of the others.
struct MachineClock {
  int64_t ahead_ms = 0;
};

// A process that can be stopped and resumed, or be gone. Not destroyed before its Timeline.
struct Process {
  bool gone = false;
  int64_t stopped_until = 0;
  std::deque<Task> backlog;  // its tasks for when it resumes, in order
};

class Timeline {
 public:
  // A task planned for this time never happens.
  static constexpr int64_t kNever = INT64_MAX;

  int64_t now() const { return now_; }
  Clock::time_point NowOn(const MachineClock& clock) const {
    return Clock::time_point(milliseconds(now_ + clock.ahead_ms));
  }

  // Plans a task. Tasks of one time happen in the order in which they were planned. `process` does
  // it: not at all if it is gone, later if it is stopped. nullptr: nothing can prevent it.
  void At(int64_t when, Process* process, Task task);
  void After(int64_t delay, Process* process, Task task) {
    At(now_ + delay, process, std::move(task));
  }
  // Now, unless the process is stopped or gone.
  void Do(Process& process, Task task);
  void Stop(Process& process, int64_t until);

  // False: nothing is planned any more.
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
