// Implements node 0's side of the per-node style: the transport to nodes whose commands connect to
// this one by TCP.
//
// With a token (per_node_token.h) only commands that have the token are answered, by TLS. Without a
// token (loopback, or --insecure_rdzv) nothing here is secret, and no TLS is used. An attacker who
// reaches the port and knows --rdzv_id, the program's name and the number of nodes can take a
// node's place. Such an attacker gets the names, ranks and addresses of the nodes and a certificate
// for the rendezvous.
//
// An attacker who answers in node 0's place can start a node's *own* command only, because the
// agent of that node accepts program, environment, folders and key from that command alone
// (Agent.Own). Such an attacker chooses the time, the rank and the peers, sees that node's output
// and can stop the command, but cannot make it run a different program.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cli/per_node/per_node_admission.h"
#include "cli/per_node/per_node_peer.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// A transport to nodes that connect to this command. If it is owned by a shared_ptr, its links keep
// it alive.
class InboundTransport : public Transport, public std::enable_shared_from_this<InboundTransport> {
 public:
  using Log = std::function<void(const std::string& line)>;

  // Prepares the transport. `listener` listens on a TCP port. `own` is the transport to the first
  // node, which is this machine. `tls` is null without a token.
  InboundTransport(UniqueFd listener, AdmissionOptions options, std::shared_ptr<TokenTls> tls,
                   std::unique_ptr<Transport> own);

  ~InboundTransport() override;

  // Waits on the caller's thread until the job can start, and reports each node that joins to
  // `say`. Returns kTimedOut if too few nodes joined, or 128 + n if signal n (INT, TERM, HUP)
  // arrived. After an error, all nodes that had joined are dismissed.
  Result<void> Gather(const Log& say);
  // Refuses all nodes that have joined, because the job will not start after all. Call it after
  // Gather.
  void Dismiss(const Error& error);
  // Returns the number of ranks that a node starts. Call it after Gather.
  int SlotsOf(size_t node) const { return admission_.SlotsOf(node); }

  // Starts a thread that serves the nodes that have joined and the nodes that connect later. `say`
  // is called on that thread until the transport is destroyed.
  void Serve(Log say);
  // Starts the agent on the node NodeTarget.name. Returns kUnavailable for a node that has not
  // joined: on the first call at once, on later calls after waiting until the deadline.
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

  // Sends the end of the job, with node 0's exit code and a message for the users, to the commands
  // of all nodes. Waits until they have received it, for 3 s at most.
  void Conclude(int exit_code, const std::string& message);

 private:
  void Accept();
  void OnConnection(UniqueFd fd);
  void OnRequest(PeerId id, const pb::AdmissionRequest& request);
  void OnStranger(PeerId id, const std::string& why);
  void OnGone(PeerId id);
  void Refuse(PeerId id, const Error& error);
  void Reconsider();
  void NotifyWaiting();
  // Makes the peers at each place visible to Connect.
  void Publish();
  // Returns the name and address of a peer, such as "worker-1 (10.0.0.2)".
  std::string WhereOf(PeerId id) const;

  asio::io_context loop_{1};
  asio::posix::stream_descriptor listener_;
  asio::steady_timer accept_timer_;
  asio::steady_timer decide_timer_;
  const std::shared_ptr<TokenTls> tls_;
  const std::unique_ptr<Transport> own_;
  const std::string host_name_;  // host name of this machine
  const std::string arguments_;  // arguments of this machine's program (pb::Offered)
  Admission admission_;
  Log log_;
  PeerId next_peer_ = 1;
  std::map<PeerId, std::shared_ptr<Peer>> peers_;
  std::map<PeerId, std::string> host_names_;
  std::deque<PeerId> asking_;  // peers that have not sent their request yet, oldest first
  bool stranger_said_ = false;
  std::set<std::string> refusals_logged_;
  bool gathering_ = true;
  std::optional<Result<void>> gathered_;

  std::thread thread_;  // thread that Serve started

  Mutex mutex_;
  CondVar changed_;
  // Peers by place; null at a place without a node.
  std::vector<std::shared_ptr<Peer>> at_place_ DSL_GUARDED_BY(mutex_);
  // Names of nodes for which Connect was called at least once.
  std::set<std::string> asked_for_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
