// Connects a socket with stdin and stdout, for modes of the agent that serve over stdin and stdout.
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

// Passes bytes between a socket and stdin and stdout. Runs until stdin has ended, or until the
// socket has ended and stdout has received all bytes.
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

// Writes the hello line, with which every stream of an agent begins, so it must precede all other
// output. Returns false if stdout fails.
inline bool WriteHello(std::string_view nonce, std::string_view build_id) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string hello = FormatHello(nonce, build_id);
  return ::write(STDOUT_FILENO, hello.data(), hello.size()) == static_cast<ssize_t>(hello.size());
}

}  // namespace dslaunch
