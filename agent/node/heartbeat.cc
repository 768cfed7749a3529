#include "agent/node/heartbeat.h"

#include <utility>

namespace dslaunch {

Heartbeat::Heartbeat(milliseconds interval, milliseconds patience, Beat beat)
    : interval_(interval),
      beat_(std::move(beat)),
      loop_{.patience = patience, .turned_at = Clock::now()},
      thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Heartbeat::LoopTurned() {
  const std::lock_guard lock(mutex_);
  loop_.turned_at = Clock::now();
}

void Heartbeat::Run() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    const bool loop_lives = loop_.Lives(Clock::now());
    lock.unlock();
    beat_(loop_lives);
    lock.lock();
    ended_.wait_for(lock, interval_, [this] { return end_; });
  }
}

}  // namespace dslaunch
