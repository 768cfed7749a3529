// Manages the ranks of a node: their program and folders, their ports and connections, their MPI
// server, and the evidence about how they ended.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/logs/job_folder.h"
#include "agent/logs/log_keeping.h"
#include "agent/mpi/pmix_helper.h"
#include "agent/node/node_output.h"
#include "agent/node/node_program.h"
#include "agent/node/node_rendezvous.h"
#include "agent/node/rank_link_hub.h"
#include "agent/node/rank_stdin.h"
#include "agent/node/rank_watch.h"
#include "agent/node/supervisor_link.h"
#include "agent/node/worker_end.h"
#include "agent/probe/node_check.h"
#include "agent/samples/node_sampler.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "proto/agent.pb.h"
#include "proto/contract/port_reservation.h"

namespace dslaunch {

// Does the I/O of AgentCore for the ranks of a node. Used on the loop's thread.
class NodeRanks {
 public:
  // `sampler` gets the devices of the ranks. `sockets_fd` is the socket through which the
  // supervisor receives sockets for workers. `pmix_server` is the content of the program
  // dslaunch-pmix; empty if there is none.
  NodeRanks(asio::io_context& loop, NodeOutput& out, NodeRendezvous& rendezvous,
            SupervisorLink& supervisor, NodeSampler& sampler, int sockets_fd,
            std::string_view pmix_server);
  ~NodeRanks() { CloseStdin(); }

  // Finds the program, and creates the node's folder with the agent's log. Precondition of all
  // functions below: OpenFolder() has succeeded.
  Result<void> OpenFolder();
  // Opens the ports at which ranks of other nodes connect to this node's ranks.
  Result<void> OpenPorts();
  // Adds facts about the machine to `info`. The message of an error names the node.
  Result<void> Describe(pb::PreparedNode& info);
  void OnRun(const pb::RunRequest& request) { run_ = request; }
  pb::InputReply Input(const pb::InputRequest& request);
  // Maintains the log files and checks their disk space. Called at each tick.
  void CheckLogs();
  // Returns how long each rank has shown no sign of life (RankWatch).
  std::vector<pb::Stillness> Stillness() { return watch_.Stillness(); }
  // Ends the MPI server once no rank runs. Called after the actions of each event.
  void CheckMpi();
  void EndMpi() { pmix_.reset(); }
  void CloseStdin();
  void CloseLinks() { rank_links_.reset(); }

  // Returns the path of the node's folder; empty before OpenFolder().
  std::string folder() const { return folder_ ? folder_->path() : ""; }
  // Returns the connections between ranks; nullptr if there are none.
  RankLinkHub* links() const { return rank_links_.get(); }
  int master_port() const { return master_port_.port; }

  void Do(agent_action::PlanWorkers& action);
  void Do(agent_action::DescribeWorker& action);
  void Do(agent_action::StartMpiServer&);
  void Do(agent_action::AskMpiServer& action);
  void Do(agent_action::ReservePort& action);

 private:
  // Returns the reason why ranks with PMIx cannot be served on this node; empty if they can be
  // served.
  std::string WhyNoPmix() const;
  // Opens the sockets and folders that the ranks of this attempt need for MPI.
  Result<void> OpenMpi(const agent_action::PlanWorkers& plan);
  void AddMpi(pb::SpawnWorkers& specs) const;
  void OpenLinks();
  RankLinkPlan PlanLinks(const agent_action::PlanWorkers& plan) const;
  Result<PlannedWorkers> PlanRanks(const agent_action::PlanWorkers& plan);
  Result<void> OpenStdin(pb::WorkerSpec& rank_0);
  // Lets rank 0, which is on this node, listen at MASTER_PORT: either releases the port, or passes
  // the socket that listens there to rank 0.
  Result<void> GiveMasterPort(pb::WorkerSpec& rank_0);
  // Checks who listens at MASTER_PORT until rank 0 does, or until the ranks have connections to
  // each other and no longer need the port.
  void WatchMasterPort();
  // Reserves a port for rank 0, and releases the port that was reserved before.
  Result<void> ReserveMasterPort();

  asio::io_context& loop_;
  NodeOutput& out_;
  AgentCore& core_;
  const NodeRendezvous& rendezvous_;
  NodeSampler& sampler_;
  const UniqueFd sockets_;  // socket for passing sockets to the supervisor
  const std::string_view pmix_server_;
  std::optional<NodeProgram> program_;
  std::optional<JobFolder> folder_;
  std::optional<LogKeeping> log_keeping_;
  pb::RunRequest run_;
  PortReservation master_port_;
  asio::steady_timer master_port_timer_;
  std::unique_ptr<RankLinkHub> rank_links_;
  std::string rank_socket_;  // path for DSLAUNCH_RANK_SOCKET of the ranks
  // MPI server of the running ranks; nullptr if there is none.
  std::unique_ptr<PmixHelper> pmix_;
  // Stdin of rank 0; nullptr unless rank 0 is on this node and may read.
  std::shared_ptr<RankStdin> stdin_;
  RankWatch watch_;
  NodeCheck check_;
  WorkerLife workers_life_;  // facts about the attempt that all workers share
};

}  // namespace dslaunch
