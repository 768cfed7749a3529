// The front end's connection to one node's agent, from the connected link to its end.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/session/copy_list.h"
#include "cli/session/event_reader.h"
#include "cli/transport/transport.h"
#include "net/loop_poster.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/open_calls.h"

namespace dslaunch {

// All methods and callbacks run on the loop's thread. Close the poster before destroying a client;
// no callback runs after that. The destructor ends the connection and waits for pending calls,
// which end then.
class NodeClient {
 public:
  // The connection counts as broken once nothing has arrived on it for `silent_after`.
  NodeClient(asio::io_context& loop, std::shared_ptr<LoopPoster> poster, std::string name,
             std::unique_ptr<NodeLink> link, milliseconds silent_after);
  ~NodeClient();
  NodeClient(const NodeClient&) = delete;

  // Call it once. Ends within a time limit; the error names the node.
  void Prepare(pb::PrepareRequest request, std::function<void(Result<pb::PreparedNode>)> then);
  // Call it before Prepare. Ends if nothing moves; the error names the node.
  void Copy(std::shared_ptr<const CopyList> list, std::function<void(Result<pb::CopyDone>)> then);
  // Call it once, after Prepare. `limits` are the limits of the job for events of the node.
  void Run(pb::RunRequest request, EventReader::Handlers handlers, const PeerLimits& limits);
  // Renews the node's lease. nullopt: no answer arrived in time. Other failures are not reported.
  void Renew(std::optional<uint64_t> last_seen_us, milliseconds timeout,
             std::function<void(std::optional<uint64_t> clock_us)> then);
  // Call it after the node has reported RendezvousLost. Ends within a time limit; the error names
  // the node.
  void Failover(const pb::FailoverRequest& request,
                std::function<void(Result<pb::RendezvousOpened>)> then);
  // Stop and Signal do not wait for the answer.
  void Stop(const pb::Cause& cause, bool kill_now);
  void Signal(int signal_number);
  // Reads where the threads of the node's ranks are. Ends within a time limit; the error names the
  // node. `limits` are the job's limits.
  void GetStacks(const PeerLimits& limits, std::function<void(Result<pb::StacksReply>)> then);
  // Sends input to rank 0 on this node. `taken`: whether the node accepted it. `then` is called
  // unless the connection breaks.
  void Input(std::string data, bool end, std::function<void(bool taken)> then);
  // Call it once. After the answer the job on that node no longer needs this front end. Ends within
  // a time limit; the error names the node.
  void Detach(std::function<void(Result<void>)> then);

  // Drops output that is not shown yet, from now on.
  void DropOutput() {
    if (reader_) reader_->LetGo();
  }
  // Ends the connection at once.
  void Abort(const std::string& why);
  // Closes this end of the connection. A supervisor with nothing left to do then ends; any other
  // tears its node down.
  void SayGoodbye();
  // Call it after this end is closed. Waits, without blocking, until the supervisor has ended, the
  // deadline has passed or the connection is lost. Only the end of the supervisor guarantees that
  // no process is left on the node.
  void AwaitEnd(Deadline deadline, std::function<void(bool supervisor_ended)> then);
  // Like AwaitEnd, but blocks.
  void WaitEnd(Deadline deadline) { link_->WaitEnd(deadline); }
  // Lets the job continue without this front end, even after this is destroyed.
  void LeaveRunning() { link_->LeaveRunning(); }

  // The last lines of the supervisor's stderr, without the final newline.
  std::string LastOutput() const;
  // The link, which has the node's address and this machine's address as the node sees it.
  const NodeLink& link() const { return *link_; }

 private:
  const std::shared_ptr<LoopPoster> poster_;
  const std::string name_;
  const std::shared_ptr<NodeLink> link_;  // shared with the thread that waits for the link's end
  StreamHandle stream_;                   // descriptor of the link, which gRPC reads and writes
  std::unique_ptr<pb::Agent::Stub> stub_;
  OpenCalls calls_;
  asio::steady_timer watchdog_;  // a gRPC deadline can be missed while a write blocks
  std::shared_ptr<EventReader> reader_;
};

}  // namespace dslaunch
