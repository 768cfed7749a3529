// Reads a stream of a node's events, one by one.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <string>

#include "cli/session/event_gate.h"
#include "net/loop_poster.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The next event is read after the last one is handled. Until then the call does not end, unless
// it is released. What breaks a rule ends the call (EventGate). The reader keeps itself alive until
// its call has ended; its creator keeps it as long as an event may still be handled.
class EventReader final : public grpc::ClientReadReactor<pb::NodeEvent>,
                          public std::enable_shared_from_this<EventReader> {
 public:
  // All are called on the loop's thread, and not any more once the loop is closed.
  struct Handlers {
    std::function<void(const pb::NodeEvent&)> event;  // all but output
    // A piece of a rank's output. The next event is read once `go_on` was called.
    std::function<void(const pb::LogChunk&, std::function<void()> go_on)> log;
    std::function<void()> ended;
    // The node sent what no agent sends, before `ended`; a sentence that names it. May be empty.
    std::function<void(const std::string& what)> broke_rules = {};
    // The next event is awaited; or one has arrived and is being handled. May be empty.
    std::function<void()> listening = {};
    std::function<void()> holding = {};
  };
  // Makes the call, with `reader` as its reactor. Kept as long as the call needs what it holds.
  using StartFn = std::function<void(grpc::ClientContext* context, EventReader* reader)>;

  static std::shared_ptr<EventReader> Start(std::shared_ptr<LoopPoster> loop, Handlers handlers,
                                            StartFn start, EventGate gate = EventGate());

  // The output cannot be shown any more, or the other end has closed the connection. Events sent
  // before are still read to the end, but output that arrives from now on is left out, and none is
  // waited for. On the loop's thread.
  void LetGo();
  // Cancels the call. On the loop's thread, or once it is closed.
  void Cancel();

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status&) override;

 private:
  // Keeps the call from ending. Dropped, wherever that is, it does so no more.
  class Hold;

  EventReader(std::shared_ptr<LoopPoster> loop, Handlers handlers, StartFn start, EventGate gate);
  void Handle();
  void HandleLog(const std::shared_ptr<pb::NodeEvent>& event);
  void Break(const std::string& what);
  void GoOn();
  void ReadNext();

  const std::shared_ptr<LoopPoster> loop_;
  const Handlers handlers_;
  const StartFn start_;  // released after the context
  EventGate gate_;
  grpc::ClientContext context_;
  // Shared with output that is being handled, which LetGo does not wait for.
  std::shared_ptr<pb::NodeEvent> event_ = std::make_shared<pb::NodeEvent>();
  std::shared_ptr<EventReader> self_;  // keeps this object until OnDone
  // On the loop's thread. While an event is handled no read is under way, and only a hold keeps
  // gRPC from ending the call under the next StartRead.
  bool holds_ = false;
  bool let_go_ = false;
};

}  // namespace dslaunch
