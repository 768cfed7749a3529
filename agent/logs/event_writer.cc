#include "agent/logs/event_writer.h"

#include <asio/post.hpp>
#include <utility>

#include "base/mutex.h"

namespace dslaunch {

// The sink of a writer. The agent owns the sink, and gRPC owns the writer until OnDone. Either may
// be destroyed first, so the sink accesses the writer under a lock.
class EventWriter::Sink final : public EventSink {
 public:
  explicit Sink(EventWriter* writer) : writer_(writer) {}
  void Write(pb::NodeEvent event) override {
    const MutexLock lock(mutex_);
    if (writer_ != nullptr) writer_->WriteEvent(std::move(event));
  }
  void Finish() override {
    const MutexLock lock(mutex_);
    if (writer_ != nullptr) writer_->FinishOnce();
  }
  void Part() {
    const MutexLock lock(mutex_);
    writer_ = nullptr;
  }

 private:
  Mutex mutex_;
  EventWriter* writer_ DSL_GUARDED_BY(mutex_);
};

EventWriter::EventWriter(asio::io_context& loop, OnWritten on_written, OnOver on_over)
    : loop_(loop),
      on_written_(std::move(on_written)),
      on_over_(std::move(on_over)),
      sink_(std::make_shared<Sink>(this)) {}

std::shared_ptr<EventSink> EventWriter::sink() const { return sink_; }

void EventWriter::WriteEvent(pb::NodeEvent event) {
  event_ = std::move(event);
  StartWrite(&event_);
}

void EventWriter::FinishOnce() {
  if (!finished_.exchange(true)) Finish(grpc::Status::OK);
}

void EventWriter::OnWriteDone(bool ok) {
  asio::post(loop_, [call = on_written_, sink = sink_, ok] { call(sink.get(), ok); });
}

void EventWriter::OnCancel() {
  asio::post(loop_, [call = on_over_, sink = sink_] { call(sink.get()); });
  FinishOnce();
}

void EventWriter::OnDone() {
  sink_->Part();
  asio::post(loop_, [call = on_over_, sink = sink_] { call(sink.get()); });
  delete this;
}

}  // namespace dslaunch
