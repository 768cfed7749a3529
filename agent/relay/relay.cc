#include "agent/relay/relay.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <memory>
#include <utility>

#include "agent/relay/relay_service.h"
#include "agent/supervisor/stdio_pump.h"
#include "base/exit_code.h"
#include "base/socket_pair.h"
#include "proto/wire/channel.h"

namespace dslaunch {

int RunRelay(const std::string& nonce, const std::string& build_id) {
  if (!SayHello(nonce, build_id)) return ToInt(ExitCode::kIo);
  prctl(PR_SET_NAME, "dslaunch-relay");
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return ToInt(pair.error().code);
  asio::io_context loop(1);
  RelayService service(loop);
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return ToInt(ExitCode::kInternal);
  StdioPump pump(loop, std::move(pair->ours));
  ServeFd(*server, std::move(pair->theirs));
  loop.run();
  // The programs' parent-death signals follow this thread, and gRPC's orderly shutdown has nothing
  // to save.
  _exit(ToInt(ExitCode::kOk));
}

}  // namespace dslaunch
