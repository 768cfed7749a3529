#include "trainer/comm/backend_watch.h"

#include <chrono>
#include <utility>

#include "trainer/base/failure_exit.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr std::chrono::milliseconds kPeriod{200};

}  // namespace

BackendWatch::BackendWatch(c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)), thread_([this] { Run(); }) {}

BackendWatch::~BackendWatch() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    stop_called_.NotifyAll();
  }
  thread_.join();
}

void BackendWatch::Run() {
  const MutexLock lock(mutex_);
  while (
      !stop_called_.WaitFor(mutex_, kPeriod, [this]() DSL_REQUIRES(mutex_) { return stopped_; })) {
    switch (backend_->getError()) {
      case c10d::ErrorType::SUCCESS:
        break;
      case c10d::ErrorType::TIMEOUT:
        ExitByFailure(
            PeerLate("a collective on the GPU takes longer than run.collective_timeout_s"));
      case c10d::ErrorType::COMM_ERROR:
      case c10d::ErrorType::REMOTE_ERROR:
        ExitByFailure(PeerLost("a collective on the GPU has failed"));
    }
  }
}

}  // namespace dslaunch
