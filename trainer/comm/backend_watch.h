// Notices that collectives on a device have failed. The thread that runs the training does not: it
// has only enqueued them, and waits for a device that never gets on.
#pragma once

#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/mutex.h"

namespace dslaunch {

// A thread of its own that asks `backend` for its error, and ends the process by ExitByFailure when
// it has one: kUnavailable where a peer is lost, kTimedOut where it is late.
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
