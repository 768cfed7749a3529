#include "trainer/comm/links/transfer_steps.h"

#include <utility>

namespace dslaunch {

void BeginTransfer(LinkEngine& engine, const LinkTransfer& message, Deadline deadline,
                   LinkEngine::Done done) {
  const auto& [way, peer, tag, data, bytes] = message;
  if (way == LinkTransfer::Way::kSend) {
    engine.Send(peer, tag, data, bytes, deadline, std::move(done));
  } else {
    engine.Receive(peer, tag, data, bytes, deadline, std::move(done));
  }
}

void TransferSteps::When(const std::vector<LinkTransfer>& messages, std::function<void()> then) {
  if (messages.empty()) {
    const MutexLock lock(state_->mutex);
    if (then) state_->ready.push_back(std::move(then));
    return;
  }
  struct Step {
    size_t left;
    std::function<void()> then;
  };
  auto step = std::make_shared<Step>(messages.size(), std::move(then));
  {
    const MutexLock lock(state_->mutex);
    ++state_->under_way;
  }
  const LinkEngine::Done done = [state = state_, step](const std::exception_ptr& error) {
    const MutexLock lock(state->mutex);
    if (error && !state->error) state->error = error;
    if (--step->left > 0 && !state->error) return;
    if (step->left == 0) {
      --state->under_way;
      if (step->then) state->ready.push_back(std::move(step->then));
    }
    state->changed.NotifyAll();
  };
  for (const LinkTransfer& message : messages) BeginTransfer(engine_, message, deadline_, done);
}

void TransferSteps::Run() {
  while (true) {
    std::function<void()> then;
    {
      const MutexLock lock(state_->mutex);
      state_->changed.Wait(state_->mutex, [this]() DSL_REQUIRES(state_->mutex) {
        return !state_->ready.empty() || state_->under_way == 0 || state_->error;
      });
      if (state_->error) std::rethrow_exception(state_->error);
      if (state_->ready.empty()) return;
      then = std::move(state_->ready.front());
      state_->ready.pop_front();
    }
    then();
  }
}

}  // namespace dslaunch
