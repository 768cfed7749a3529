// Nodes whose commands connect to this one by TCP: node 0's side of the per-node style.
//
// With a token (per_node_token.h) only commands that know it are answered, by TLS. Without one
// (loopback, or --insecure_rdzv) nothing here is secret, and there is no TLS. An attacker who
// reaches the port and knows --rdzv_id, the program's name and the number of nodes can take a
// node's place: he gets the names, ranks and addresses of the nodes and a certificate for the
// rendezvous. One who answers in node 0's place can start a node's *own* command, because its agent
// takes program, environment, folders and key from that command alone (Agent.Own): he chooses when,
// with which rank and peers, sees that node's output and can stop it. He cannot have another
// program run.
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

// Where it is shared, its links keep it.
class InboundTransport : public Transport, public std::enable_shared_from_this<InboundTransport> {
 public:
  using Log = std::function<void(const std::string& line)>;

  // `listener` listens on a TCP port. `own` is the way to the first node, which is this machine.
  // `tls`: null without a token.
  InboundTransport(UniqueFd listener, AdmissionOptions options, std::shared_ptr<TokenTls> tls,
                   std::unique_ptr<Transport> own);

  ~InboundTransport() override;

  // Waits on the caller's thread until the job can start; each node that joins is reported to
  // `say`. kTimedOut when too few joined; 128 + n when signal n (INT, TERM, HUP) arrived. After an
  // error all that had joined are dismissed.
  Result<void> Gather(const Log& say);
  // After Gather: the job will not start after all.
  void Dismiss(const Error& error);
  // Ranks that a node starts. After Gather.
  int SlotsOf(size_t node) const { return admission_.SlotsOf(node); }

  // From now on a thread of its own serves the nodes that have joined and those that connect later.
  // `say` is called on it until this is destroyed.
  void Serve(Log say);
  // By NodeTarget.name. A node that has not joined is kUnavailable: at once the first time, later
  // after a wait until the deadline.
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;
  // Sends every node's command how the job ended, and waits until they have received it, 3 s at
  // most.
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
  // Lets Connect know which peer has which place.
  void Publish();
  // "worker-1 (10.0.0.2)".
  std::string WhereOf(PeerId id) const;

  asio::io_context loop_{1};
  asio::posix::stream_descriptor listener_;
  asio::steady_timer accept_timer_;
  asio::steady_timer decide_timer_;
  const std::shared_ptr<TokenTls> tls_;
  const std::unique_ptr<Transport> own_;
  const std::string host_name_;  // name of this machine
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

  std::thread thread_;  // Serve's

  Mutex mutex_;
  CondVar changed_;
  // Null at places without a node.
  std::vector<std::shared_ptr<Peer>> at_place_ DSL_GUARDED_BY(mutex_);
  // Nodes for which Connect was called at least once.
  std::set<std::string> asked_for_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
