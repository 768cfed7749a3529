#include "agent/supervisor/serve_stdio.h"

#include <unistd.h>

#include <memory>
#include <utility>

#include "agent/supervisor/stdio_pump.h"
#include "base/exit_code.h"
#include "base/os/socket_pair.h"
#include "proto/wire/channel.h"

namespace dslaunch {

int ServeStdio(asio::io_context& loop, grpc::Service& service,
               const std::function<void()>& at_end) {
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return ToInt(pair.error().code);
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return ToInt(ExitCode::kInternal);
  StdioPump pump(loop, std::move(pair->ours));
  ServeFd(*server, std::move(pair->theirs));
  loop.run();
  if (at_end) at_end();
  // gRPC's orderly shutdown would save no data, so the process exits at once. Exiting also ends the
  // processes that get a signal when this thread ends, such as a relay's programs.
  _exit(ToInt(ExitCode::kOk));
}

}  // namespace dslaunch
