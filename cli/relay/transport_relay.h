// Reaches many nodes over few links. A relay on one node of each group runs, for each other node of
// the group, a program that connects to the node, as mpirun's daemons run ssh.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/connect_step.h"
#include "cli/transport/node_command.h"
#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Divides `nodes` into groups of neighbours. The first node of a group that is reached becomes its
// relay. The other nodes wait for the relay; if it fails or is slow, one of them becomes the relay.
//
// If a relay is lost, or a connection to or from it, the streams of a resumable job continue
// through another connection (ResumableLink), for which a node of the group becomes the relay. If
// that fails, a link ends like the link of a lost node, and WaitEnd asks through another relay
// whether the node's supervisor has ended. Thread-safe.
class RelayTransport : public Transport {
 public:
  using OnStep = std::function<void(ConnectStep)>;

  struct Options {
    AgentBinary agent;
    AgentRole role;
    // Returns the transport from this machine to an agent in the role kRelay. `is_again` is true if
    // streams are being resumed; the user must not be prompted then.
    std::function<std::shared_ptr<Transport>(OnStep, bool is_again)> to_relay;
    // The command that a relay runs to reach another node.
    std::shared_ptr<const NodeCommand> from_relay;
    std::string hint;  // text that is appended to every error
    OnStep on_step;    // receives each step of a connection as it begins; may be empty
    std::vector<NodeTarget> nodes;
    size_t fanout = 0;          // number of nodes in a group (RelayFanout); above 1
    bool is_resumable = false;  // whether the agents of a job outlive the connections to them
  };
  // Returns options for SSH: libssh to the relays, and the system's ssh from the relays, which must
  // reach the nodes without a prompt. A `ssh_command` that is not empty replaces libssh.
  static Options OverSsh(const AgentBinary& agent, const AgentRole& role, const SshOptions& ssh,
                         std::vector<std::string> ssh_command, std::vector<NodeTarget> nodes,
                         size_t fanout);
  explicit RelayTransport(Options options);
  ~RelayTransport() override;

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  class Tree;
  const std::shared_ptr<Tree> tree_;  // groups and relays, shared with the links
};

}  // namespace dslaunch
