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
  // Somebody else removes it.
  std::shared_ptr<EventReader> Release() { return std::move(reader_); }

 private:
  std::shared_ptr<EventReader> reader_;
};

std::shared_ptr<EventReader> EventReader::Start(std::shared_ptr<LoopPoster> loop, Handlers handlers,
                                                StartFn start) {
  std::shared_ptr<EventReader> reader(
      new EventReader(std::move(loop), std::move(handlers), std::move(start)));
  reader->self_ = reader;
  reader->start_(&reader->context_, reader.get());
  reader->ReadNext();
  reader->StartCall();
  return reader;
}

EventReader::EventReader(std::shared_ptr<LoopPoster> loop, Handlers handlers, StartFn start)
    : loop_(std::move(loop)), handlers_(std::move(handlers)), start_(std::move(start)) {}

void EventReader::OnReadDone(bool ok) {
  if (!ok) return;
  loop_->Post([hold = Hold(shared_from_this())]() mutable {
    const std::shared_ptr<EventReader> reader = hold.Release();
    reader->holds_ = true;
    reader->Handle();
  });
}

void EventReader::OnDone(const grpc::Status&) {
  loop_->Post([self = std::move(self_)] {
    if (self->handlers_.holding) self->handlers_.holding();
    self->handlers_.ended();
  });
}

void EventReader::LetGo() {
  let_go_ = true;
  if (std::exchange(holds_, false)) RemoveHold();
}

void EventReader::Cancel() {
  context_.TryCancel();
  LetGo();
}

void EventReader::Handle() {
  if (handlers_.holding) handlers_.holding();
  if (event_.has_log()) {
    handlers_.log(event_.log(), [self = weak_from_this()] {
      if (const std::shared_ptr<EventReader> reader = self.lock()) reader->GoOn();
    });
    if (let_go_) LetGo();
    return;
  }
  handlers_.event(event_);
  GoOn();
}

void EventReader::GoOn() {
  if (!std::exchange(holds_, false)) return;
  ReadNext();
  RemoveHold();
}

void EventReader::ReadNext() {
  if (handlers_.listening) handlers_.listening();
  StartRead(&event_);
}

}  // namespace dslaunch
