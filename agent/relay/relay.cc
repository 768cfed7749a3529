#include "agent/relay/relay.h"

#include <sys/prctl.h>

#include <asio/io_context.hpp>
#include <csignal>

#include "agent/relay/relay_service.h"
#include "agent/supervisor/serve_stdio.h"
#include "agent/supervisor/stdio_pump.h"
#include "base/exit_code.h"

namespace dslaunch {

int RunRelay(const std::string& nonce, const std::string& build_id) {
  if (!WriteHello(nonce, build_id)) return ToInt(ExitCode::kIo);
  prctl(PR_SET_NAME, "dslaunch-relay");
  // Slurm ends a step by sending signals to all of its processes. The relay has to survive these
  // signals while the nodes stop in order. Programs would inherit ignored signals, so the relay
  // handles them instead.
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2})
    std::signal(signal, [](int) {});
  asio::io_context loop(1);
  RelayService service(loop);
  return ServeStdio(loop, service);
}

}  // namespace dslaunch
