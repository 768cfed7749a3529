#include "agent/inspect/inspect.h"

#include <unistd.h>

#include <asio/io_context.hpp>
#include <cstdlib>
#include <utility>

#include "agent/inspect/inspect_service.h"
#include "agent/node/attach_socket.h"
#include "agent/supervisor/serve_stdio.h"
#include "agent/supervisor/stdio_pump.h"
#include "base/exit_code.h"

namespace dslaunch {

int RunAttach(const InspectOptions& options, const std::string& job_id, uint32_t node_index) {
  if (!WriteHello(options.nonce, options.build_id)) return ToInt(ExitCode::kIo);
  UniqueFd socket = ConnectToSocket(SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                                    SocketName(job_id, node_index));
  if (!socket) return ToInt(ExitCode::kUnavailable);
  asio::io_context loop(1);
  StdioPump pump(loop, std::move(socket));
  loop.run();
  return ToInt(ExitCode::kOk);
}

int RunRead(const InspectOptions& options) {
  if (!WriteHello(options.nonce, options.build_id)) return ToInt(ExitCode::kIo);
  asio::io_context loop(1);
  InspectService service(loop);
  return ServeStdio(loop, service, [&service] { service.StopProbe(); });
}

}  // namespace dslaunch
