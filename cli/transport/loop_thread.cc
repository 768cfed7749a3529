#include "cli/transport/loop_thread.h"

#include <asio/post.hpp>
#include <utility>

#include "base/deadline.h"
#include "base/mutex.h"
#include "base/os/start_thread.h"

namespace dslaunch {
namespace {

constexpr milliseconds kEndsWithin(10'000);  // limit for the exit of an idle thread

}  // namespace

Result<std::shared_ptr<LoopThread>> LoopThread::Start(const std::string& purpose) {
  const std::shared_ptr<LoopThread> loop(new LoopThread);
  std::promise<void> ended;
  loop->ended_ = ended.get_future();
  DSL_TRY_ASSIGN(loop->thread_, StartThread(
                                    [context = loop->context_, ended = std::move(ended)]() mutable {
                                      context->run();
                                      ended.set_value();
                                    },
                                    purpose));
  return loop;
}

LoopThread::~LoopThread() {
  if (!thread_.joinable()) return;
  work_.reset();
  const bool is_own = context_->get_executor().running_in_this_thread();
  if (!is_own && ended_.wait_for(kEndsWithin) == std::future_status::ready)
    thread_.join();
  else
    thread_.detach();
}

// Handlers on the loop do not block, so the wait for the result is short.
void LoopThread::Run(const std::function<void()>& act) {
  if (context_->get_executor().running_in_this_thread()) return act();
  std::promise<void> done;
  asio::post(*context_, [&] {
    act();
    done.set_value();
  });
  done.get_future().wait();
}

Result<std::shared_ptr<LoopThread>> SshLoop() {
  static Mutex mutex;
  static std::weak_ptr<LoopThread> shared;
  const MutexLock lock(mutex);
  if (std::shared_ptr<LoopThread> loop = shared.lock()) return loop;
  DSL_TRY_ASSIGN(std::shared_ptr<LoopThread> loop, LoopThread::Start("for connections to nodes"));
  shared = loop;
  return loop;
}

}  // namespace dslaunch
