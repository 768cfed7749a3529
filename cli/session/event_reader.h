// A stream of a node's events, read one by one.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <asio/io_context.hpp>
#include <functional>

#include "base/silence.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The next event is read when the last one has been dealt with. Until then the call does not end,
// unless it is let go. Outlives its call.
class EventReader final : public grpc::ClientReadReactor<pb::NodeEvent> {
 public:
  // All are called on the loop's thread.
  struct Handlers {
    std::function<void(const pb::NodeEvent&)> event;  // all but output
    // A piece of a rank's output. The next event is read once `go_on` was called.
    std::function<void(const pb::LogChunk&, std::function<void()> go_on)> log;
    std::function<void()> ended;
  };

  // `start` makes the call, with this as its reactor. Both references outlive the reader.
  EventReader(asio::io_context& loop, SilenceWatch& silence, Handlers handlers,
              const std::function<void(grpc::ClientContext*, EventReader*)>& start);

  // Nothing more is to be expected of the call: it may end while an event is being dealt with. On
  // the loop's thread.
  void LetGo();

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status&) override;

 private:
  void Handle();
  void GoOn();
  void ReadNext();

  asio::io_context& loop_;
  SilenceWatch& silence_;  // listens while a read is outstanding
  const Handlers handlers_;
  grpc::ClientContext context_;
  pb::NodeEvent event_;
  // Of the loop's thread. While an event is dealt with no read is under way, and only a hold keeps
  // gRPC from ending the call under the next StartRead.
  bool holds_ = false;
  bool let_go_ = false;
};

}  // namespace dslaunch
