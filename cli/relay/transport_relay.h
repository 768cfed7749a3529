// Reaches many nodes over few links: a relay on one node of each group runs a program for each of
// the others that connects to it, as mpirun's daemons run ssh.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/node_command.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Groups are neighbours in `nodes`. The first node of a group to be reached becomes its relay; the
// others wait for it, and one of them becomes the relay where that fails or takes long. When a
// relay is lost, or a connection to it or from it, the streams of a resumable job go on through
// another connection (ResumableLink), for which a node of the group becomes the relay. Where that
// fails a link ends as that of a lost node does, and WaitEnd asks anew, by another relay, whether
// the node's supervisor has ended. Thread-safe.
class RelayTransport : public Transport {
 public:
  using OnStep = std::function<void(SshStep)>;

  struct Options {
    AgentBinary agent;
    AgentRole role;
    // The way from here to a relay, to an agent in the role kRelay. `is_again`: to resume streams,
    // without a question to the user.
    std::function<std::shared_ptr<Transport>(OnStep, bool is_again)> to_relay;
    // What a relay runs to reach another node.
    std::shared_ptr<const NodeCommand> from_relay;
    std::string hint;  // what follows its errors
    OnStep on_step;    // may be empty; see SshOptions
    std::vector<NodeTarget> nodes;
    size_t fanout = 0;          // nodes of a group (RelayFanout); above 1
    bool is_resumable = false;  // the agents of a job outlive the connections to them
  };
  // Over SSH: by libssh to the relays, and from there by the system's, which must reach the nodes
  // without a question. `ssh_command` is called in its place unless it is empty.
  static Options OverSsh(const AgentBinary& agent, const AgentRole& role, const SshOptions& ssh,
                         std::vector<std::string> ssh_command, std::vector<NodeTarget> nodes,
                         size_t fanout);
  explicit RelayTransport(Options options);
  ~RelayTransport() override;

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  class Tree;
  const std::shared_ptr<Tree> tree_;  // shared with the links
};

}  // namespace dslaunch
