#include "cli/launchers/transport_choice.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "cli/launchers/srun_command.h"
#include "cli/launchers/transport_engine.h"
#include "cli/relay/transport_relay.h"
#include "cli/transport/transport_command.h"
#include "cli/transport/transport_local.h"
#include "cli/transport/transport_ssh.h"

namespace dslaunch {
namespace {

Result<EngineTransport::Options> EngineOptions(Engine engine, const TransportChoice& choice,
                                               const AgentBinary& agent, const AgentRole& role) {
  DSL_TRY(CheckEngineNodes(engine, choice.nodes));
  EngineTransport::Options options;
  options.agent = agent;
  options.engine = {engine, choice.exec_command, ::geteuid() == 0,
                    std::getenv("PDSH_RCMD_TYPE") != nullptr, choice.slurm_shares};
  for (const char* name : kSlurmRequestVariables) {
    if (const char* const value = std::getenv(name); value != nullptr)
      options.engine.request_variables.push_back(std::string(name) + "=" + value);
  }
  std::string& program = options.engine.words.front();
  if (std::string path = FindProgram(program); !path.empty()) {
    program = std::move(path);
  } else {
    return Error{ExitCode::kUsage,
                 "there is no program '" + Truncate(program) +
                     "' in PATH, by which the nodes are to be reached; install it here (Debian: " +
                     (engine == Engine::kOpenMpi ? "openmpi-bin"
                      : engine == Engine::kPdsh  ? "pdsh"
                                                 : "slurm-client") +
                     "), or take another --launcher"};
  }
  options.role = role;
  options.nodes = choice.nodes;
  options.network_interface = choice.network_interface;
  options.on_step = choice.ssh.on_step;
  return options;
}

Result<std::unique_ptr<Transport>> MakeEngine(Engine engine, const TransportChoice& choice,
                                              const AgentBinary& agent, const AgentRole& role) {
  DSL_TRY_ASSIGN(EngineTransport::Options options, EngineOptions(engine, choice, agent, role));
  return std::unique_ptr<Transport>(std::make_unique<EngineTransport>(std::move(options)));
}

// srun starts each relay, and each relay runs one srun for each other node of its group.
Result<std::unique_ptr<Transport>> MakeSlurmRelays(const TransportChoice& choice,
                                                   const AgentBinary& agent,
                                                   const AgentRole& role) {
  AgentRole relay_role;
  relay_role.kind = AgentRole::Kind::kRelay;
  DSL_TRY_ASSIGN(EngineTransport::Options to_relays,
                 EngineOptions(Engine::kSlurm, choice, agent, relay_role));
  to_relays.nodes.clear();
  to_relays.num_single = choice.nodes.size() / choice.fanout + 1;
  RelayTransport::Options options;
  options.agent = agent;
  options.role = role;
  // On the relay's node it is where PATH says.
  EngineWords from_relay = to_relays.engine;
  from_relay.words.front() = choice.exec_command.front();
  options.from_relay = std::make_shared<SrunNodeCommand>(std::move(from_relay));
  options.to_relay = [transport = std::make_shared<EngineTransport>(std::move(to_relays))](
                         const RelayTransport::OnStep&, bool) { return transport; };
  options.hint = "; nodes are reached from relays; --fanout 0 reaches each from here";
  options.on_step = choice.ssh.on_step;
  options.nodes = choice.nodes;
  options.fanout = choice.fanout;
  return std::unique_ptr<Transport>(std::make_unique<RelayTransport>(std::move(options)));
}

// Over SSH, but for nodes that are this machine.
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
  std::unique_ptr<Transport> transport;
  switch (choice.launcher) {
    case Launcher::kOpenMpi:
      return MakeEngine(Engine::kOpenMpi, choice, agent, role);
    case Launcher::kPdsh:
      return MakeEngine(Engine::kPdsh, choice, agent, role);
    case Launcher::kSlurm:
      if (choice.fanout > 1) return MakeSlurmRelays(choice, agent, role);
      return MakeEngine(Engine::kSlurm, choice, agent, role);
    case Launcher::kExec: {
      DSL_TRY_ASSIGN(auto command, ExecNodeCommand::Make(choice.exec_command));
      transport =
          std::make_unique<CommandTransport>(agent, std::move(command), role, choice.ssh.on_step);
      break;
    }
    case Launcher::kLocal:
    case Launcher::kPerNode:
      transport = std::make_unique<LocalTransport>(agent, role);
      break;
    case Launcher::kSsh:
      transport = std::make_unique<SshOrHere>(MakeSsh(choice, agent, role), agent, role);
      break;
  }
  return transport;
}

}  // namespace dslaunch
