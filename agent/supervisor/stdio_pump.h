// For roles of the agent that serve what started them over their own stdin and stdout.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>

#include "agent/supervisor/supervisor_pump.h"
#include "base/os/build_id.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Passes bytes between our own stdin and stdout and `socket` until stdin has ended, or the socket
// has and stdout got all of it.
class StdioPump {
 public:
  StdioPump(asio::io_context& loop, UniqueFd socket)
      : in_(loop, DuplicateFd(STDIN_FILENO), DuplicateFd(socket.get())),
        out_(loop, std::move(socket), DuplicateFd(STDOUT_FILENO)) {
    in_.Start([&loop](SupervisorPump::Event event) {
      if (event == SupervisorPump::Event::kSourceEnded) loop.stop();
    });
    out_.Start([&loop](SupervisorPump::Event) { loop.stop(); });
  }

 private:
  SupervisorPump in_;
  SupervisorPump out_;
};

// Writes the hello line, before anything else. False: stdout takes nothing.
inline bool SayHello(std::string_view nonce, std::string_view build_id) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string hello = FormatHello(nonce, build_id);
  return ::write(STDOUT_FILENO, hello.data(), hello.size()) == static_cast<ssize_t>(hello.size());
}

}  // namespace dslaunch
