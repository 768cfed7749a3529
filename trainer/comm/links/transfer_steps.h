// Runs the steps of an operation, each when the messages of a LinkEngine that it depends on are
// done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "trainer/comm/links/link_engine.h"

namespace dslaunch {

struct LinkTransfer {
  enum class Way { kSend, kReceive };
  Way way;
  size_t peer;
  uint64_t tag;
  // Data to send, or destination of the data; must be valid until the message is done.
  std::byte* data;
  size_t bytes;
};

// Begins to send or receive a message, depending on `message.way`. `done` is called once, on the
// engine's thread, when the message is complete (with null) or has failed (with the error).
void BeginTransfer(LinkEngine& engine, const LinkTransfer& message, Deadline deadline,
                   LinkEngine::Done done);

// The steps of one operation. The same thread must add and run the steps. If Run throws, messages
// may still be pending; LinkEngine::FailAll ends them.
class TransferSteps {
 public:
  TransferSteps(LinkEngine& engine, Deadline deadline) : engine_(engine), deadline_(deadline) {}

  // Begins the messages. Run calls `then` after all `messages` are done, or at once if there are
  // none.
  void When(const std::vector<LinkTransfer>& messages, std::function<void()> then = {});
  // Runs until all steps are done, including steps that other steps add. Throws the error of the
  // first message that fails, at the latest after the deadline.
  void Run();

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    size_t under_way DSL_GUARDED_BY(mutex) = 0;  // number of steps with pending messages
    std::deque<std::function<void()>> ready DSL_GUARDED_BY(mutex);
    std::exception_ptr error DSL_GUARDED_BY(mutex);  // error of the first message that fails
  };

  LinkEngine& engine_;
  const Deadline deadline_;
  // Pending messages may outlive this object, so they share the state.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace dslaunch
