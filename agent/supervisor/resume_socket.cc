#include "agent/supervisor/resume_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "agent/supervisor/stdio_pump.h"
#include "base/errno_text.h"
#include "base/exit_code.h"
#include "base/os/unix_socket.h"

namespace dslaunch {
namespace {

constexpr int kBacklog = 4;

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    const std::string text = "dslaunch-" + name;
    address.sun_family = AF_UNIX;
    // A name that begins with a zero byte is in the abstract namespace, so the name begins after
    // the first byte.
    const size_t bytes = std::min(text.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, text.data(), bytes);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

}  // namespace

Result<UniqueFd> MakeResumeSocket(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener || ::bind(listener.get(), address.get(), address.size) != 0)
    return Error{ExitCode::kInternal, "a Unix socket: " + ErrnoText(errno)};
  return listener;
}

void ListenForResume(int socket) { ::listen(socket, kBacklog); }

UniqueFd AcceptResume(int listener) {
  UniqueFd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (connection && !IsOwnUser(connection.get())) connection.Reset();
  return connection;
}

UniqueFd ConnectToResume(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection || ::connect(connection.get(), address.get(), address.size) != 0 ||
      !IsOwnUser(connection.get()))
    connection.Reset();
  return connection;
}

int RunResume(const std::string& nonce, const std::string& build_id, const std::string& name) {
  if (!WriteHello(nonce, build_id)) return ToInt(ExitCode::kIo);
  UniqueFd socket = ConnectToResume(name);
  if (!socket) return ToInt(ExitCode::kUnavailable);
  asio::io_context loop(1);
  StdioPump pump(loop, std::move(socket));
  loop.run();
  return ToInt(ExitCode::kOk);
}

}  // namespace dslaunch
