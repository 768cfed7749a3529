#include "cli/session/node_connector.h"

#include <utility>

#include "base/backoff.h"
#include "base/start_thread.h"
#include "cli/session/session_core.h"

namespace dslaunch {

void NodeConnector::Connect(size_t index, const NodeTarget& target, int attempt, Then then) {
  if (attempt == 0) return ConnectNow(target, std::move(then));
  asio::steady_timer& pause = pauses_.try_emplace(index, loop_).first->second;
  pause.expires_after(PauseAfter(attempt - 1, first_wait_, kMaxRetryWait, RandomPart()));
  pause.async_wait([this, target, then = std::move(then)](const asio::error_code& error) {
    if (!error) ConnectNow(target, then);
  });
}

void NodeConnector::ConnectNow(const NodeTarget& target, Then then) {
  const Deadline deadline = Deadline::After(timeout_);
  Result<std::thread> thread = StartThread(
      [transport = transport_, poster = poster_, target, deadline, then]() mutable {
        Result<std::unique_ptr<NodeLink>> link = transport->Connect(target, deadline);
        transport.reset();
        poster->Post(
            [link = std::move(link), then = std::move(then)]() mutable { then(std::move(link)); });
      },
      "to connect to node '" + target.name + "'");
  if (thread.ok()) return thread->detach();
  poster_->Post([error = thread.error(), then = std::move(then)] { then(error); });
}

}  // namespace dslaunch
