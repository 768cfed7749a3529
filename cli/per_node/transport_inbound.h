// Nodes whose commands come to this one by TCP: node 0's side of the per-node style.
//
// With a token (per_node_token.h) only those who know it are heard, by TLS. Without one the network
// is trusted, as torchrun trusts it: nothing here is secret, and no TLS. Whoever reaches the port
// and knows --rdzv_id, program and number of nodes can take a node's place: it then gets what this
// job's ranks are told, and the keys with which its agents know each other. Whoever answers in node
// 0's place can have a node run that node's *own* command, for its agent takes program, environment
// and folders from that command alone (Agent.Own): when, with which rank and peers, and it can see
// that node's output and stop it. It cannot have another program run.
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

  // Waits on the caller's thread until the job can start; who comes is said. kTimedOut when too few
  // came; 128 + n when signal n (INT, TERM, HUP) came. Then nobody waits here any more.
  Result<void> Gather(const Log& say);
  // After Gather: the job will not start after all.
  void Dismiss(const Error& error);
  // Ranks that a node starts. After Gather.
  int SlotsOf(size_t node) const { return admission_.SlotsOf(node); }

  // From now on a thread of its own serves those who are here and those who come. `say` is called
  // on it until this is destroyed.
  void Serve(Log say);
  // By NodeTarget.name. A node that has not come is kUnavailable: at once the first time, later
  // after it was waited for until the deadline.
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;
  // Tells every node's command how the job ended, and waits until they have heard it.
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
  // Lets Connect know who sits where.
  void Publish();
  // "worker-1 (10.0.0.2)".
  std::string WhereOf(PeerId id) const;

  asio::io_context loop_{1};
  asio::posix::stream_descriptor listener_;
  asio::steady_timer accept_timer_;
  asio::steady_timer decide_timer_;
  const std::shared_ptr<TokenTls> tls_;
  const std::unique_ptr<Transport> own_;
  const std::string host_name_;  // of this machine
  const std::string arguments_;  // of its program; pb::Offered
  Admission admission_;
  Log log_;
  PeerId next_peer_ = 1;
  std::map<PeerId, std::shared_ptr<Peer>> peers_;
  std::map<PeerId, std::string> host_names_;
  std::deque<PeerId> asking_;  // have not said who they are, oldest first
  bool stranger_said_ = false;
  std::set<std::string> refusals_logged_;
  bool gathering_ = true;
  std::optional<Result<void>> gathered_;

  std::thread thread_;  // Serve's

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Peer>> at_place_ DSL_GUARDED_BY(mutex_);  // null: nobody
  std::set<std::string> asked_for_ DSL_GUARDED_BY(mutex_);              // by Connect, once at least
};

}  // namespace dslaunch
