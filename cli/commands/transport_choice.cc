#include "cli/commands/transport_choice.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "cli/call_back/call_back_transport.h"
#include "cli/relay/launcher_node_command.h"
#include "cli/relay/transport_relay.h"
#include "cli/transport/ssh/transport_ssh.h"
#include "cli/transport/transport_command.h"
#include "cli/transport/transport_local.h"

namespace dslaunch {
namespace {

Result<CallBackTransport::Options> CallBackOptionsFor(const TransportChoice& choice,
                                                      const AgentBinary& agent,
                                                      const AgentRole& role) {
  DSL_TRY(CheckLauncherNodes(choice.launcher, choice.nodes));
  std::vector<std::string> words = choice.exec_command;
  std::string path = FindProgram(words.front());
  if (path.empty()) {
    const std::string package(RowOf(choice.launcher).package);
    return Error{ExitCode::kUsage, "there is no program '" + Truncate(words.front()) +
                                       "' in PATH, by which the nodes are to be reached; install "
                                       "it here" +
                                       (package.empty() ? "" : " (Debian: " + package + ")") +
                                       ", or take another --launcher"};
  }
  words.front() = std::move(path);
  CallBackTransport::Options options;
  options.agent = agent;
  options.program =
      MakeLauncherProgram(choice.launcher, std::move(words), ::geteuid() == 0,
                          [](const char* name) -> const char* { return std::getenv(name); });
  options.program.shares = choice.slurm_shares;
  options.role = role;
  options.nodes = choice.nodes;
  options.network_interface = choice.network_interface;
  options.on_step = choice.ssh.on_step;
  return options;
}

Result<std::unique_ptr<Transport>> MakeCallBack(const TransportChoice& choice,
                                                const AgentBinary& agent, const AgentRole& role) {
  DSL_TRY_ASSIGN(CallBackTransport::Options options, CallBackOptionsFor(choice, agent, role));
  return std::unique_ptr<Transport>(std::make_unique<CallBackTransport>(std::move(options)));
}

// Makes a transport over relays. The launcher starts each relay, and each relay runs the launcher
// once for each other node of its group.
Result<std::unique_ptr<Transport>> MakeCallBackRelays(const TransportChoice& choice,
                                                      const AgentBinary& agent,
                                                      const AgentRole& role) {
  AgentRole relay_role;
  relay_role.kind = AgentRole::Kind::kRelay;
  DSL_TRY_ASSIGN(CallBackTransport::Options to_relays,
                 CallBackOptionsFor(choice, agent, relay_role));
  to_relays.nodes.clear();
  to_relays.num_single = choice.nodes.size() / choice.fanout + 1;
  RelayTransport::Options options;
  options.agent = agent;
  options.role = role;
  // The program's path may differ on the relay's node, so the relay finds the program by PATH.
  LauncherProgram from_relay = to_relays.program;
  from_relay.words.front() = choice.exec_command.front();
  options.from_relay = std::make_shared<LauncherNodeCommand>(std::move(from_relay));
  options.to_relay = [transport = std::make_shared<CallBackTransport>(std::move(to_relays))](
                         const RelayTransport::OnStep&, bool) { return transport; };
  options.hint = "; nodes are reached from relays; --fanout 0 reaches each from here";
  options.on_step = choice.ssh.on_step;
  options.nodes = choice.nodes;
  options.fanout = choice.fanout;
  return std::unique_ptr<Transport>(std::make_unique<RelayTransport>(std::move(options)));
}

// Reaches nodes over SSH, except nodes that are this machine.
class SshOrHere : public Transport {
 public:
  SshOrHere(std::unique_ptr<Transport> ssh, const AgentBinary& agent, const AgentRole& role)
      : ssh_(std::move(ssh)), here_(agent, role) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override {
    return target.is_here ? here_.Connect(target, deadline) : ssh_->Connect(target, deadline);
  }
  size_t ConnectsAtOnce() const override { return ssh_->ConnectsAtOnce(); }

 private:
  const std::unique_ptr<Transport> ssh_;
  LocalTransport here_;
};

std::unique_ptr<Transport> MakeSsh(const TransportChoice& choice, const AgentBinary& agent,
                                   const AgentRole& role) {
  if (choice.fanout <= 1) return std::make_unique<SshTransport>(agent, choice.ssh, role);
  std::vector<NodeTarget> others = choice.nodes;
  std::erase_if(others, [](const NodeTarget& node) { return node.is_here; });
  return std::make_unique<RelayTransport>(
      RelayTransport::OverSsh(agent, role, choice.ssh, choice.ssh_command, others, choice.fanout));
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeTransport(const TransportChoice& choice,
                                                 const AgentBinary& agent, const AgentRole& role) {
  switch (RowOf(choice.launcher).way) {
    case Way::kAllAtOnce:
      return choice.fanout > 1 ? MakeCallBackRelays(choice, agent, role)
                               : MakeCallBack(choice, agent, role);
    case Way::kEachNode: {
      DSL_TRY_ASSIGN(auto command, ExecNodeCommand::Make(choice.exec_command));
      return std::unique_ptr<Transport>(
          std::make_unique<CommandTransport>(agent, std::move(command), role, choice.ssh.on_step));
    }
    case Way::kSsh:
      return std::unique_ptr<Transport>(
          std::make_unique<SshOrHere>(MakeSsh(choice, agent, role), agent, role));
    case Way::kHere:
    case Way::kOwnCommands:
      break;
  }
  return std::unique_ptr<Transport>(std::make_unique<LocalTransport>(agent, role));
}

}  // namespace dslaunch
