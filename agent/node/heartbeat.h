// Sends the agent's heartbeats on a separate thread. An agent whose loop waits for a slow disk is
// still alive, so heartbeats continue; they report it as dead only if the loop has not run for too
// long.
#pragma once

#include <functional>
#include <thread>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// Determines whether a loop is alive: whether it has run within the last `patience`.
struct LoopWatch {
  milliseconds patience{0};
  Clock::time_point turned_at;
  bool Lives(Clock::time_point now) const { return now - turned_at < patience; }
};

class Heartbeat {
 public:
  // Sends a heartbeat; called on the heartbeat thread. `loop_lives` is false if the loop has not
  // run for `patience`.
  using Beat = std::function<void(bool loop_lives)>;

  // Starts the thread, which calls `beat` at once and then every `interval`.
  Heartbeat(milliseconds interval, milliseconds patience, Beat beat);
  // Stops the heartbeats, and waits for a call of `beat` in progress.
  ~Heartbeat();

  // Records that the loop runs. A loop that is alive calls this more often than every `patience`.
  // Thread-safe.
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
