#include "agent/supervisor/front_end_link.h"

#include <sys/socket.h>

#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <utility>

#include "agent/supervisor/resume_socket.h"
#include "base/deadline.h"

namespace dslaunch {
namespace {

constexpr size_t kMostCallers = 4;
// Limit of the wait for the front end's request, which a front end sends at once.
constexpr milliseconds kRequestWithin{2'000};

}  // namespace

Result<ResumePlace> OpenResumePlace() {
  ResumePlace place;
  DSL_TRY_ASSIGN(place.ticket, DrawTicket());
  DSL_TRY_ASSIGN(place.listener, MakeResumeSocket(place.ticket.socket));
  return place;
}

FrontEndLink::FrontEndLink(asio::io_context& loop, UniqueFd local, ResumePlace place,
                           Handlers handlers)
    : loop_(loop),
      handlers_(std::move(handlers)),
      secret_(place.ticket.secret),
      stream_(loop, std::move(local),
              {.on_broken = [this](const std::string&) { OnBroken(); },
               .on_all_sent = [this] { handlers_.on_all_sent(); }}) {
  listener_.emplace(loop, place.listener.Release());
}

void FrontEndLink::OnBroken() {
  if (listener_ && !std::exchange(is_listening_, true)) {
    ListenForResume(listener_->native_handle());
    Accept();
  }
  handlers_.on_broken();
}

void FrontEndLink::Close() {
  listener_.reset();
  while (!callers_.empty()) Drop(callers_.front());
  stream_.Close();
}

void FrontEndLink::Accept() {
  listener_->async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code error) {
    if (error || !listener_) return;
    if (UniqueFd fd = AcceptResume(listener_->native_handle()); fd) {
      if (callers_.size() == kMostCallers) Drop(callers_.front());
      callers_.push_back(std::make_shared<Caller>(loop_, std::move(fd)));
      ReadRequest(callers_.back());
    }
    Accept();
  });
}

void FrontEndLink::ReadRequest(const std::shared_ptr<Caller>& caller) {
  caller->timer.expires_after(kRequestWithin);
  caller->timer.async_wait([this, caller](std::error_code error) {
    if (!error) Drop(caller);
  });
  asio::async_read(caller->socket, asio::buffer(caller->text),
                   [this, caller](std::error_code error, size_t) {
                     if (!error) Resume(*caller);
                     Drop(caller);
                   });
}

void FrontEndLink::Drop(std::shared_ptr<Caller> caller) {
  callers_.remove(caller);
  caller->timer.cancel();
  std::error_code ignored;
  caller->socket.close(ignored);
}

void FrontEndLink::Resume(Caller& caller) {
  const std::optional<StreamResume> request = ParseRequest(caller.text);
  if (!request || !IsSameSecret(request->secret, secret_) ||
      !stream_.CanResumeAt(request->received))
    return;
  // The old connection may still seem to work, but its data must not be read any more, so it is
  // closed.
  stream_.Disconnect();
  const std::string answer = FormatAnswer(stream_.received());
  // The answer fits into the buffer of a new socket, so a failed send is not retried.
  if (::send(caller.socket.native_handle(), answer.data(), answer.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(answer.size()))
    return handlers_.on_broken();
  const int fd = caller.socket.native_handle();
  stream_.ResumeAt(request->received, MakeStreamEnd(loop_, DuplicateFd(fd)));
  handlers_.on_resumed();
}

}  // namespace dslaunch
