#include "cli/transport/transport_choice.h"

#include <utility>

#include "cli/transport/transport_command.h"
#include "cli/transport/transport_local.h"
#include "cli/transport/transport_ssh.h"

namespace dslaunch {

Result<std::unique_ptr<Transport>> MakeTransport(const TransportChoice& choice,
                                                 const AgentBinary& agent, const AgentRole& role) {
  std::unique_ptr<Transport> transport;
  if (!choice.exec_command.empty()) {
    DSL_TRY_ASSIGN(auto command, ExecNodeCommand::Make(choice.exec_command));
    transport =
        std::make_unique<CommandTransport>(agent, std::move(command), role, choice.ssh.on_step);
  } else if (choice.is_here) {
    transport = std::make_unique<LocalTransport>(agent, role);
  } else {
    transport = std::make_unique<SshTransport>(agent, choice.ssh, role);
  }
  return transport;
}

}  // namespace dslaunch
