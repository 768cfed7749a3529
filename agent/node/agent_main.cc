#include "agent/node/agent_main.h"

#include <unistd.h>

#include <asio/io_context.hpp>

#include "agent/node/agent_service.h"
#include "proto/wire/channel.h"

namespace dslaunch {

int RunAgent(int grpc_fd, int control_fd, int sockets_fd, int command_fd,
             std::string_view pmix_server) {
  asio::io_context loop(1);
  std::unique_ptr<grpc::Server> server;
  NodeAgent agent(loop, control_fd, sockets_fd, pmix_server,
                  [&server](UniqueFd connection) { ServeFd(*server, std::move(connection)); });
  AgentService service(loop, agent);
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&service);
  server = builder.BuildAndStart();
  if (!server) return ToInt(ExitCode::kInternal);
  ServeFd(*server, UniqueFd(grpc_fd));
  if (command_fd >= 0) ServeFd(*server, UniqueFd(command_fd));
  loop.run();
  // gRPC's orderly shutdown would take longer than a whole job that does nothing, and no data is
  // left to save, so the process exits at once.
  _exit(ToInt(ExitCode::kOk));
}

}  // namespace dslaunch
