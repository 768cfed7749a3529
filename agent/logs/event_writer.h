// Implements EventSink as a gRPC stream of NodeEvent to one reader.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <atomic>
#include <functional>
#include <memory>

#include "agent/logs/event_stream.h"

namespace dslaunch {

// Writes events to a gRPC stream. Deletes itself when gRPC no longer uses it. The sink may outlive
// the writer, and then ignores events.
class EventWriter final : public grpc::ServerWriteReactor<pb::NodeEvent> {
 public:
  // Both callbacks run on the loop's thread. `on_written` is called when an event was accepted or
  // will never be accepted. `on_over` is called once or twice when the stream has ended.
  using OnWritten = std::function<void(const EventSink* sink, bool ok)>;
  using OnOver = std::function<void(const EventSink* sink)>;

  EventWriter(asio::io_context& loop, OnWritten on_written, OnOver on_over);

  std::shared_ptr<EventSink> sink() const;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class Sink;

  void WriteEvent(pb::NodeEvent event);
  void FinishOnce();

  asio::io_context& loop_;
  const OnWritten on_written_;
  const OnOver on_over_;
  const std::shared_ptr<Sink> sink_;
  pb::NodeEvent event_;
  std::atomic<bool> finished_ = false;
};

}  // namespace dslaunch
