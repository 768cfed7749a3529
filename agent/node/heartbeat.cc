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
    const MutexLock lock(mutex_);
    end_ = true;
  }
  ended_.NotifyAll();
  thread_.join();
}

void Heartbeat::LoopTurned() {
  const MutexLock lock(mutex_);
  loop_.turned_at = Clock::now();
}

void Heartbeat::Run() {
  MutexLock lock(mutex_);
  while (!end_) {
    const bool loop_lives = loop_.Lives(Clock::now());
    lock.Unlock();
    beat_(loop_lives);
    lock.Lock();
    ended_.WaitFor(mutex_, interval_, [this]() DSL_REQUIRES(mutex_) { return end_; });
  }
}

}  // namespace dslaunch
