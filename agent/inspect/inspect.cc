#include "agent/inspect/inspect.h"

#include <unistd.h>

#include <asio/io_context.hpp>
#include <cstdlib>
#include <utility>

#include "agent/inspect/inspect_service.h"
#include "agent/node/attach_socket.h"
#include "agent/supervisor/stdio_pump.h"
#include "base/exit_code.h"
#include "base/socket_pair.h"
#include "proto/wire/channel.h"

namespace dslaunch {

int RunAttach(const InspectOptions& options, const std::string& job_id, uint32_t node_index) {
  if (!SayHello(options.nonce, options.build_id)) return ToInt(ExitCode::kIo);
  UniqueFd socket = ConnectToSocket(SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                                    SocketName(job_id, node_index));
  if (!socket) return ToInt(ExitCode::kUnavailable);
  asio::io_context loop(1);
  StdioPump pump(loop, std::move(socket));
  loop.run();
  return ToInt(ExitCode::kOk);
}

int RunRead(const InspectOptions& options) {
  if (!SayHello(options.nonce, options.build_id)) return ToInt(ExitCode::kIo);
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
