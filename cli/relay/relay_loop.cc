#include "cli/relay/relay_loop.h"

#include <utility>

#include "base/deadline.h"
#include "base/start_thread.h"

namespace dslaunch {
namespace {

constexpr milliseconds kEndsWithin(10'000);  // once its last call has ended

}  // namespace

Result<std::shared_ptr<RelayLoop>> RelayLoop::Start() {
  const std::shared_ptr<RelayLoop> loop(new RelayLoop);
  std::promise<void> ended;
  loop->ended_ = ended.get_future();
  DSL_TRY_ASSIGN(loop->thread_, StartThread(
                                    [context = loop->context_, ended = std::move(ended)]() mutable {
                                      context->run();
                                      ended.set_value();
                                    },
                                    "for the relays"));
  return loop;
}

RelayLoop::~RelayLoop() {
  if (!thread_.joinable()) return;
  work_.reset();
  if (ended_.wait_for(kEndsWithin) == std::future_status::ready)
    thread_.join();
  else
    thread_.detach();
}

}  // namespace dslaunch
