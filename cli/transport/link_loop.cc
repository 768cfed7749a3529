#include "cli/transport/link_loop.h"

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace dslaunch {

Result<LinkLoop*> LinkLoop::Shared() {
  static Mutex mutex;
  static LinkLoop* shared = nullptr;  // never destroyed: its thread runs until the process ends
  const MutexLock lock(mutex);
  if (shared != nullptr) return shared;
  auto* const loop = new LinkLoop;
  Result<std::thread> thread = StartThread(
      [loop] {
        const auto work = asio::make_work_guard(loop->context_);
        loop->context_.run();
      },
      "for connections to nodes");
  if (!thread.ok()) {
    delete loop;
    return thread.error();
  }
  thread->detach();
  shared = loop;
  return shared;
}

// The wait is short, because nothing on the loop waits.
void LinkLoop::Run(const std::function<void()>& act) {
  if (context_.get_executor().running_in_this_thread()) return act();
  std::promise<void> done;
  asio::post(context_, [&] {
    act();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace dslaunch
