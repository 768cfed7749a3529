// Sends the agent's heartbeats on a thread of its own, because an agent whose loop waits for a slow
// disk is busy, not dead. If the loop has not turned for too long, the heartbeat thread reports it
// as dead.
#pragma once

#include <functional>
#include <thread>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// Whether a loop counts as alive: it has turned within `patience`.
struct LoopWatch {
  milliseconds patience{0};
  Clock::time_point turned_at;
  bool Lives(Clock::time_point now) const { return now - turned_at < patience; }
};

class Heartbeat {
 public:
  // Called on the heartbeat thread. `loop_lives` is false once the loop has not turned for
  // `patience`, until it turns again.
  using Beat = std::function<void(bool loop_lives)>;

  // Beats at once, and then every `interval`.
  Heartbeat(milliseconds interval, milliseconds patience, Beat beat);
  // Waits for a beat in progress.
  ~Heartbeat();

  // Called by the loop, at least as often as needed to count as alive. Thread-safe.
  void LoopTurned();

 private:
  void Run();

  const milliseconds interval_;
  const Beat beat_;
  Mutex mutex_;
  CondVar ended_;
  bool end_ DSL_GUARDED_BY(mutex_) = false;
  LoopWatch loop_ DSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace dslaunch
