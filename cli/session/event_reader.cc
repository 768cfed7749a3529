#include "cli/session/event_reader.h"

#include <asio/post.hpp>
#include <utility>

namespace dslaunch {

EventReader::EventReader(asio::io_context& loop, SilenceWatch& silence, Handlers handlers,
                         const std::function<void(grpc::ClientContext*, EventReader*)>& start)
    : loop_(loop), silence_(silence), handlers_(std::move(handlers)) {
  start(&context_, this);
  ReadNext();
  StartCall();
}

void EventReader::OnReadDone(bool ok) {
  if (!ok) return;
  AddHold();
  asio::post(loop_, [this] { Handle(); });
}

void EventReader::OnDone(const grpc::Status&) {
  asio::post(loop_, [this] {
    silence_.Hold();
    handlers_.ended();
  });
}

void EventReader::LetGo() {
  let_go_ = true;
  if (std::exchange(holds_, false)) RemoveHold();
}

void EventReader::Handle() {
  silence_.Hold();
  holds_ = true;
  if (event_.has_log()) {
    handlers_.log(event_.log(), [this] { GoOn(); });
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
  silence_.Listen(Clock::now());
  StartRead(&event_);
}

}  // namespace dslaunch
