#include "cli/session/node_connector.h"

#include <utility>

#include "base/backoff.h"
#include "base/os/start_thread.h"
#include "cli/core/session_core.h"

namespace dslaunch {

void NodeConnector::Connect(size_t index, const NodeTarget& target, int attempt, Then then) {
  if (attempt == 0) {
    waiting_.push_back({target, std::move(then)});
    return BeginWaiting();
  }
  asio::steady_timer& pause = pauses_.try_emplace(index, loop_).first->second;
  pause.expires_after(PauseAfter(attempt - 1, first_wait_, kMaxRetryWait, RandomPart()));
  pause.async_wait([this, target, then = std::move(then)](const asio::error_code& error) {
    if (error) return;
    waiting_.push_back({target, then});
    BeginWaiting();
  });
}

void NodeConnector::BeginWaiting() {
  while (!waiting_.empty() && counted_.size() < transport_->ConnectsAtOnce()) {
    const Result<void> begun = Begin(waiting_.front());
    // A thread will be available once one of the attempts has ended, so this attempt is retried
    // then.
    if (!begun.ok() && under_way_ > 0) return;
    const Attempt attempt = std::move(waiting_.front());
    waiting_.pop_front();
    if (!begun.ok()) poster_->Post([error = begun.error(), then = attempt.then] { then(error); });
  }
}

Result<void> NodeConnector::Begin(const Attempt& attempt) {
  const uint64_t id = next_id_++;
  DSL_TRY_ASSIGN(
      std::thread thread,
      StartThread(
          [this, id, transport = transport_, poster = poster_, target = attempt.target,
           deadline = Deadline::After(timeout_), then = attempt.then]() mutable {
            Result<std::unique_ptr<NodeLink>> link = transport->Connect(target, deadline);
            transport.reset();
            poster->Post([this, id, link = std::move(link), then = std::move(then)]() mutable {
              OnAnswered(id, std::move(link), then);
            });
          },
          "to connect to node '" + attempt.target.name + "'"));
  thread.detach();
  ++under_way_;
  asio::steady_timer& counts = counted_.try_emplace(id, loop_, kCountsFor).first->second;
  counts.async_wait([this, id](const asio::error_code& error) {
    if (error) return;
    counted_.erase(id);
    BeginWaiting();
  });
  return {};
}

void NodeConnector::OnAnswered(uint64_t id, Result<std::unique_ptr<NodeLink>> link,
                               const Then& then) {
  --under_way_;
  counted_.erase(id);
  BeginWaiting();
  then(std::move(link));
}

}  // namespace dslaunch
