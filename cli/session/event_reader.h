// Reads a stream of a node's events one by one.
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

// Reads the next event only after the previous event has been handled. Until then the call does not
// end, unless it is released. An event that violates a rule ends the call (EventGate). The reader
// keeps itself alive until its call has ended; its creator keeps it as long as an event may still
// be handled.
class EventReader final : public grpc::ClientReadReactor<pb::NodeEvent>,
                          public std::enable_shared_from_this<EventReader> {
 public:
  // The handlers run on the loop's thread. No handler runs after the loop is closed.
  struct Handlers {
    std::function<void(const pb::NodeEvent&)> event;  // receives all events except output
    // Receives a piece of a rank's output. The reader reads the next event once `go_on` was called.
    std::function<void(const pb::LogChunk&, std::function<void()> go_on)> log;
    std::function<void()> ended;  // called once, when the call has ended
    // Receives a sentence that describes an invalid message of the node; called before `ended`. May
    // be empty.
    std::function<void(const std::string& what)> broke_rules = {};
    // Called when the reader begins to wait for the next event; may be empty.
    std::function<void()> listening = {};
    // Called when an event has arrived and is about to be handled, and when the call has ended; may
    // be empty.
    std::function<void()> holding = {};
  };
  // Makes the call, with `reader` as its reactor. The function is kept as long as the call needs
  // the objects that it captures.
  using StartFn = std::function<void(grpc::ClientContext* context, EventReader* reader)>;

  static std::shared_ptr<EventReader> Start(std::shared_ptr<LoopPoster> loop, Handlers handlers,
                                            StartFn start, EventGate gate = EventGate());

  // Stops waiting for output. Call it on the loop's thread when output can no longer be shown, or
  // when the node has closed the connection. Events sent before are still read to the end, but
  // output that arrives from now on is dropped.
  void LetGo();
  // Cancels the call. Call it on the loop's thread, or after the loop is closed.
  void Cancel();

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status&) override;

 private:
  // Keeps the call from ending until the hold is destroyed, on any thread.
  class Hold;

  EventReader(std::shared_ptr<LoopPoster> loop, Handlers handlers, StartFn start, EventGate gate);
  void Handle();
  void HandleLog(const std::shared_ptr<pb::NodeEvent>& event);
  void Break(const std::string& what);
  void GoOn();
  void ReadNext();

  const std::shared_ptr<LoopPoster> loop_;
  const Handlers handlers_;
  const StartFn start_;  // destroyed after the context, which the call uses
  EventGate gate_;
  grpc::ClientContext context_;
  // LetGo does not wait for the handler of output, so the event is shared with output that is still
  // being handled.
  std::shared_ptr<pb::NodeEvent> event_ = std::make_shared<pb::NodeEvent>();
  std::shared_ptr<EventReader> self_;  // keeps this object alive until OnDone
  // These members are used on the loop's thread. While an event is handled, no read is pending, and
  // only a hold keeps gRPC from ending the call before the next StartRead.
  bool holds_ = false;
  bool let_go_ = false;
};

}  // namespace dslaunch
