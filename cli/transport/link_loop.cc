#include "cli/transport/link_loop.h"

#include <asio/post.hpp>
#include <future>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace dslaunch {

Result<std::shared_ptr<LinkLoop>> LinkLoop::Shared() {
  static Mutex mutex;
  static std::weak_ptr<LinkLoop> shared;
  const MutexLock lock(mutex);
  if (std::shared_ptr<LinkLoop> loop = shared.lock()) return loop;
  std::shared_ptr<LinkLoop> loop(new LinkLoop);
  DSL_TRY_ASSIGN(loop->thread_, StartThread([context = loop->context_] { context->run(); },
                                            "for connections to nodes"));
  shared = loop;
  return loop;
}

LinkLoop::LinkLoop()
    : context_(std::make_shared<asio::io_context>(1)), work_(context_->get_executor()) {}

LinkLoop::~LinkLoop() {
  context_->stop();
  if (!thread_.joinable()) return;  // it could not be started
  if (context_->get_executor().running_in_this_thread()) {
    thread_.detach();  // it ends as it comes back from here
  } else {
    thread_.join();
  }
}

// The wait is short, because nothing on the loop waits.
void LinkLoop::Run(const std::function<void()>& act) {
  if (context_->get_executor().running_in_this_thread()) return act();
  std::promise<void> done;
  asio::post(*context_, [&] {
    act();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace dslaunch
