// Reaches many nodes over few links: a relay on one node of each group runs the system's ssh for
// the others, as mpirun's daemons do.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cli/relay/relay_client.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Groups are neighbours in `nodes`. The first node of a group to be reached becomes its relay; the
// others wait for it, and one of them becomes the relay where that fails or takes long. A link of a
// lost relay ends as that of a lost node does, and the next Connect to a node of its group makes
// another. Nodes must reach each other by ssh without a question. Thread-safe.
class RelayTransport : public Transport {
 public:
  struct Options {
    AgentBinary agent;
    AgentRole role;
    SshOptions ssh;                        // from here to the relays
    std::vector<std::string> ssh_command;  // from the relays on; empty: ssh
    std::vector<NodeTarget> nodes;
    size_t fanout = 0;  // nodes of a group (RelayFanout); above 1
  };
  explicit RelayTransport(Options options);
  ~RelayTransport() override;

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  struct Group;
  class Link;

  // Started with the first relay.
  Result<std::shared_ptr<RelayLoop>> Loop();
  // A relay that others made, or null: this node is to be the relay.
  std::shared_ptr<RelayClient> AwaitRelay(Group& group);
  Result<std::unique_ptr<NodeLink>> BecomeRelay(const std::shared_ptr<Group>& group,
                                                const NodeTarget& target, Deadline deadline);
  Result<std::unique_ptr<NodeLink>> ConnectBy(const std::shared_ptr<RelayClient>& relay,
                                              const NodeTarget& target, Deadline deadline) const;

  const Options options_;
  std::map<std::string, std::shared_ptr<Group>> groups_;  // by the name of each node
  Mutex mutex_;
  std::shared_ptr<RelayLoop> loop_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
