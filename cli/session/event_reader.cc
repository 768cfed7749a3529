#include "cli/session/event_reader.h"

#include <utility>

namespace dslaunch {

class EventReader::Hold {
 public:
  explicit Hold(std::shared_ptr<EventReader> reader) : reader_(std::move(reader)) {
    reader_->AddHold();
  }
  Hold(Hold&&) = default;
  ~Hold() {
    if (reader_) reader_->RemoveHold();
  }
  // Returns the reader without removing the hold; the caller must remove the hold.
  std::shared_ptr<EventReader> Release() { return std::move(reader_); }

 private:
  std::shared_ptr<EventReader> reader_;
};

std::shared_ptr<EventReader> EventReader::Start(std::shared_ptr<LoopPoster> loop, Handlers handlers,
                                                StartFn start, EventGate gate) {
  std::shared_ptr<EventReader> reader(
      new EventReader(std::move(loop), std::move(handlers), std::move(start), std::move(gate)));
  reader->self_ = reader;
  reader->start_(&reader->context_, reader.get());
  reader->ReadNext();
  reader->StartCall();
  return reader;
}

EventReader::EventReader(std::shared_ptr<LoopPoster> loop, Handlers handlers, StartFn start,
                         EventGate gate)
    : loop_(std::move(loop)),
      handlers_(std::move(handlers)),
      start_(std::move(start)),
      gate_(std::move(gate)) {}

void EventReader::OnReadDone(bool ok) {
  if (!ok) return;
  loop_->Post([hold = Hold(shared_from_this())]() mutable {
    const std::shared_ptr<EventReader> reader = hold.Release();
    reader->holds_ = true;
    reader->Handle();
  });
}

void EventReader::OnDone(const grpc::Status& status) {
  const bool is_too_large = status.error_code() == grpc::RESOURCE_EXHAUSTED;
  loop_->Post([self = std::move(self_), is_too_large] {
    if (self->handlers_.holding) self->handlers_.holding();
    if (is_too_large && self->handlers_.broke_rules)
      self->handlers_.broke_rules("an event that is too large");
    self->handlers_.ended();
  });
}

void EventReader::LetGo() {
  if (std::exchange(let_go_, true) || !holds_) return;
  event_ = std::make_shared<pb::NodeEvent>();
  GoOn();
}

void EventReader::Cancel() {
  context_.TryCancel();
  if (std::exchange(holds_, false)) RemoveHold();
}

void EventReader::Handle() {
  if (handlers_.holding) handlers_.holding();
  // A copy of the pointer, because a handler may call LetGo.
  const std::shared_ptr<pb::NodeEvent> event = event_;
  const Result<EventGate::Verdict> verdict = gate_.OnEvent(*event, Clock::now());
  if (!verdict.ok()) return Break(verdict.error().message);
  if (event->has_log() && !let_go_) return HandleLog(event);
  if (!event->has_log() && *verdict == EventGate::Verdict::kTake) handlers_.event(*event);
  if (event == event_) GoOn();
}

void EventReader::HandleLog(const std::shared_ptr<pb::NodeEvent>& event) {
  handlers_.log(event->log(), [self = weak_from_this(), event] {
    const std::shared_ptr<EventReader> reader = self.lock();
    if (reader && reader->event_ == event) reader->GoOn();
  });
}

void EventReader::Break(const std::string& what) {
  Cancel();
  if (handlers_.broke_rules) handlers_.broke_rules(what);
}

void EventReader::GoOn() {
  if (!std::exchange(holds_, false)) return;
  ReadNext();
  RemoveHold();
}

void EventReader::ReadNext() {
  if (handlers_.listening) handlers_.listening();
  StartRead(event_.get());
}

}  // namespace dslaunch
