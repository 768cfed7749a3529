// Sends the agent's heartbeats on a separate thread, because an agent whose loop waits for a slow
// disk is not dead. If the loop has not turned for too long, the heartbeats report it as dead.
#pragma once

#include <functional>
#include <thread>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// Determines whether a loop is alive: whether it has turned within `patience`.
struct LoopWatch {
  milliseconds patience{0};
  Clock::time_point turned_at;
  bool Lives(Clock::time_point now) const { return now - turned_at < patience; }
};

class Heartbeat {
 public:
  // Called on the heartbeat thread. `loop_lives` is false if the loop has not turned for
  // `patience`.
  using Beat = std::function<void(bool loop_lives)>;

  // Starts the thread, which beats at once and then every `interval`.
  Heartbeat(milliseconds interval, milliseconds patience, Beat beat);
  // Stops the beats, and waits for a beat in progress.
  ~Heartbeat();

  // Called by the loop, more often than every `patience` while it is alive. Thread-safe.
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
