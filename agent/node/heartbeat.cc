#include "agent/node/heartbeat.h"

#include <utility>

namespace dslaunch {

Heartbeat::Heartbeat(milliseconds interval, milliseconds patience, Beat beat)
    : interval_(interval),
      patience_(patience),
      beat_(std::move(beat)),
      turned_at_(Clock::now()),
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
  turned_at_ = Clock::now();
}

void Heartbeat::Run() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    const bool loop_lives = Clock::now() - turned_at_ < patience_;
    lock.unlock();
    beat_(loop_lives);
    lock.lock();
    ended_.wait_for(lock, interval_, [this] { return end_; });
  }
}

}  // namespace dslaunch
