// Carries the supervisor's stream to the front end, which may outlive its connection. The first
// connection is stdin and stdout. If it breaks, the front end resumes the stream over a connection
// to the supervisor's Unix socket.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "net/resumable/resumable_stream.h"
#include "net/resumable/resume_words.h"

namespace dslaunch {

// The socket at which the stream is resumed, and the ticket: its name and secret, which the front
// end needs to resume. The stream begins with the ticket, so the socket is created before the
// stream.
struct ResumePlace {
  ResumeTicket ticket;
  UniqueFd listener;
};
Result<ResumePlace> OpenResumePlace();

// The supervisor's end of the stream. Accepts connections only after the first connection, over
// stdin and stdout, has broken. Single-threaded; must outlive the io_context's handlers.
class FrontEndLink {
 public:
  struct Handlers {
    std::function<void()> on_broken;
    std::function<void()> on_resumed;
    std::function<void()> on_all_sent;  // called once all data was sent (ResumableStream::Handlers)
  };

  // `local` is a stream socket to the pumps (agent/supervisor/supervisor_pump.h). The pumps read
  // end of file when the front end has ended its stream, or after Close().
  FrontEndLink(asio::io_context& loop, UniqueFd local, ResumePlace place, Handlers handlers);

  // Starts the stream on the connection over which the ticket was sent.
  void Start(UniqueFd in, UniqueFd out) {
    stream_.Connect(MakeStreamEnd(loop_, std::move(in), std::move(out)));
  }

  // Ends the stream for good, so that it cannot be resumed.
  void Close();

 private:
  // A connection that has not yet proved that it may resume the stream.
  struct Caller {
    explicit Caller(asio::io_context& loop, UniqueFd fd)
        : socket(loop, fd.Release()), timer(loop) {}
    asio::posix::stream_descriptor socket;
    asio::steady_timer timer;
    std::string text = std::string(kRequestBytes, '\0');
  };

  void OnBroken();
  void Accept();
  void ReadRequest(const std::shared_ptr<Caller>& caller);
  void Drop(std::shared_ptr<Caller> caller);
  void Resume(Caller& caller);

  asio::io_context& loop_;
  const Handlers handlers_;
  const std::string secret_;
  ResumableStream stream_;
  std::optional<asio::posix::stream_descriptor> listener_;
  bool is_listening_ = false;
  std::list<std::shared_ptr<Caller>> callers_;
};

}  // namespace dslaunch
