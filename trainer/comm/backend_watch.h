// Detects failed collectives on a device. The training thread only enqueues collectives and then
// waits for the device, so it cannot detect a collective that makes no progress.
#pragma once

#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/mutex.h"

namespace dslaunch {

// Polls `backend` for errors on a separate thread. On the first error, ends the process by
// ExitByFailure: with kUnavailable if a peer is lost, with kTimedOut if a peer is late.
class BackendWatch {
 public:
  explicit BackendWatch(c10::intrusive_ptr<c10d::Backend> backend);
  ~BackendWatch();
  BackendWatch(const BackendWatch&) = delete;
  BackendWatch& operator=(const BackendWatch&) = delete;

 private:
  void Run();

  const c10::intrusive_ptr<c10d::Backend> backend_;
  Mutex mutex_;
  CondVar stop_called_;
  bool stopped_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace dslaunch
