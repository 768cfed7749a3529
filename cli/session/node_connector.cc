#include "cli/session/node_connector.h"

#include <asio/post.hpp>
#include <thread>
#include <utility>

#include "base/backoff.h"

namespace dslaunch {
namespace {

constexpr milliseconds kMaxWait(60'000);

}  // namespace

void NodeConnector::Connect(const NodeTarget& target,
                            std::function<void(Result<std::unique_ptr<NodeLink>>)> then) {
  const Deadline deadline = Deadline::After(timeout_);
  std::thread([this, target, deadline, then = std::move(then)] {
    auto link =
        std::make_shared<Result<std::unique_ptr<NodeLink>>>(transport_.Connect(target, deadline));
    asio::post(loop_, [link, then] { then(std::move(*link)); });
  }).detach();
}

void NodeConnector::KeepTrying(size_t index, const NodeTarget& target,
                               std::function<void(std::unique_ptr<NodeLink>)> then) {
  if (stopped_) return;
  std::unique_ptr<Wait>& wait = waits_[index];
  if (!wait) wait = std::make_unique<Wait>(loop_);
  wait->timer.expires_after(PauseAfter(wait->attempts++, first_wait_, kMaxWait, RandomPart()));
  wait->timer.async_wait([this, index, target, then](const asio::error_code& error) {
    if (error || stopped_) return;
    Connect(target, [this, index, target, then](Result<std::unique_ptr<NodeLink>> link) {
      if (stopped_ && link.ok()) (*link).release()->Abort("the job has ended");
      if (stopped_) return;
      link.ok() ? then(*std::move(link)) : KeepTrying(index, target, then);
    });
  });
}

void NodeConnector::Stop() {
  stopped_ = true;
  for (const auto& [index, wait] : waits_) wait->timer.cancel();
}

}  // namespace dslaunch
