// One node's agent as the front end talks to it, from the connected link to its end.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/silence.h"
#include "cli/session/event_reader.h"
#include "cli/transport/transport.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {

// All on the loop's thread. Never destroyed: calls to a node that never answers use it until the
// process ends.
class NodeClient {
 public:
  NodeClient(asio::io_context& loop, std::string name, std::unique_ptr<NodeLink> link);
  ~NodeClient();
  NodeClient(const NodeClient&) = delete;

  // Once. Bounded; the error names the node.
  void Prepare(pb::PrepareRequest request, std::function<void(Result<pb::NodeFacts>)> then);
  // Once, after Prepare.
  void Run(const pb::RunRequest& request, EventReader::Handlers handlers);
  // After the node said RendezvousLost. Bounded; the error names the node.
  void Move(const pb::MoveRequest& request, std::function<void(Result<pb::RendezvousOpened>)> then);
  // These two do not wait for their answer.
  void Stop(const pb::Cause& cause, bool kill_now);
  void Signal(int signal_number);
  // Once. From the answer on the job on that node no longer needs this front end. Bounded; the
  // error names the node.
  void Detach(std::function<void(Result<void>)> then);

  // Ends the connection at once.
  void Abort(const std::string& why);
  // End of file is the goodbye: a keeper with nothing left to do ends, any other empties its node.
  void SayGoodbye();
  // After the goodbye: waits, without blocking, until the keeper has ended, the deadline has come
  // or the connection is lost. Only the first is a promise that nothing is left on the node.
  void AwaitEnd(Deadline deadline, std::function<void(bool keeper_ended)> then);
  // The same, blocking.
  void WaitEnd(Deadline deadline) { link_->WaitEnd(deadline); }

  // What the keeper said on stderr last, without the newline at its end.
  std::string LastWords() const;
  // Where it is, and where it found this machine.
  const NodeLink& link() const { return *link_; }
  // Of the Run stream.
  SilenceWatch& silence() { return silence_; }

 private:
  void KeepRenewing();
  void OnRenewed(grpc::StatusCode code, const pb::RenewReply& reply);

  asio::io_context& loop_;
  const std::string name_;
  std::unique_ptr<NodeLink> link_;
  UniqueFd stream_;  // a second descriptor of the link's stream, to end it with
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Agent::Stub> stub_;
  grpc::ClientContext prepare_context_;
  pb::PrepareRequest prepare_request_;
  pb::PrepareReply prepare_reply_;
  asio::steady_timer watchdog_;     // a gRPC deadline can be missed while a write blocks
  asio::steady_timer renew_timer_;  // of the lease
  std::optional<uint64_t> heard_us_;
  bool preparing_ = false;
  bool over_ = false;
  pb::RunRequest run_request_;
  std::unique_ptr<EventReader> reader_;
  SilenceWatch silence_;
};

}  // namespace dslaunch
