#include "agent/inspect/inspect.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "agent/inspect/inspect_service.h"
#include "agent/node/attach_socket.h"
#include "agent/supervisor/supervisor_pump.h"
#include "base/build_id.h"
#include "base/exit_code.h"
#include "base/socket_pair.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

// Passes bytes between our own stdin and stdout and `socket` until stdin has ended, or the socket
// has and stdout got all of it.
class StdioPump {
 public:
  StdioPump(asio::io_context& loop, UniqueFd socket)
      : in_(loop, Duplicate(STDIN_FILENO), Duplicate(socket.get())),
        out_(loop, std::move(socket), Duplicate(STDOUT_FILENO)) {
    in_.Start([&loop](SupervisorPump::Event event) {
      if (event == SupervisorPump::Event::kSourceEnded) loop.stop();
    });
    out_.Start([&loop](SupervisorPump::Event) { loop.stop(); });
  }

 private:
  static UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

  SupervisorPump in_;
  SupervisorPump out_;
};

bool SayHello(const InspectOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string hello = FormatHello(options.nonce, options.build_id);
  return ::write(STDOUT_FILENO, hello.data(), hello.size()) == static_cast<ssize_t>(hello.size());
}

}  // namespace

int RunAttach(const InspectOptions& options, const std::string& job_id, uint32_t node_index) {
  if (!SayHello(options)) return ToInt(ExitCode::kIo);
  UniqueFd socket = ConnectToSocket(SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                                    SocketName(job_id, node_index));
  if (!socket) return ToInt(ExitCode::kUnavailable);
  asio::io_context loop(1);
  StdioPump pump(loop, std::move(socket));
  loop.run();
  return ToInt(ExitCode::kOk);
}

int RunRead(const InspectOptions& options) {
  if (!SayHello(options)) return ToInt(ExitCode::kIo);
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return ToInt(pair.error().code);
  asio::io_context loop(1);
  InspectService service(loop);
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return ToInt(ExitCode::kInternal);
  StdioPump pump(loop, std::move(pair->ours));
  ServeFd(*server, std::move(pair->theirs));
  loop.run();
  service.Leave();
  _exit(ToInt(ExitCode::kOk));  // gRPC's orderly shutdown has nothing to save
}

}  // namespace dslaunch
