// Implements the front end's connection to the agent of a node, from the connected link to its end.
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

// A connection to an agent. All methods and callbacks run on the loop's thread. Close the poster
// before destroying a client; no callback runs after that. The destructor ends the connection and
// waits for pending calls, which end then.
class NodeClient {
 public:
  // Takes over the connected `link`. The connection counts as broken once no bytes have arrived on
  // it for `silent_after`.
  NodeClient(asio::io_context& loop, std::shared_ptr<LoopPoster> poster, std::string name,
             std::unique_ptr<NodeLink> link, milliseconds silent_after);
  ~NodeClient();
  NodeClient(const NodeClient&) = delete;

  // Prepares the node. `then` gets the answer, or an error that names the node, within
  // kPrepareTimeout. Call it once.
  void Prepare(pb::PrepareRequest request, std::function<void(Result<pb::PreparedNode>)> then);
  // Copies files to the node. `then` gets the answer, or an error that names the node; the call
  // fails if no bytes are transferred for some time. Call it before Prepare.
  void Copy(std::shared_ptr<const CopyList> list, std::function<void(Result<pb::CopyDone>)> then);
  // Starts the stream of the node's events. Call it once, after Prepare. `limits` are the job's
  // limits for events of the node.
  void Run(pb::RunRequest request, EventReader::Handlers handlers, const PeerLimits& limits);

  // Renews the node's lease. `last_seen_us` is the clock of the node in its newest answer; nullopt
  // before the first answer. `then` gets the node's clock, or nullopt if no answer arrived within
  // `timeout`; it is not called for other failures.
  void Renew(std::optional<uint64_t> last_seen_us, milliseconds timeout,
             std::function<void(std::optional<uint64_t> clock_us)> then);
  // Sends a request for a failover. Call it after the node has reported RendezvousLost. The call
  // ends within a time limit; the error names the node.
  void Failover(const pb::FailoverRequest& request,
                std::function<void(Result<pb::RendezvousOpened>)> then);

  // Requests to stop the node's ranks because of `cause`, without a grace period if `kill_now`.
  // Does not wait for the answer.
  void Stop(const pb::Cause& cause, bool kill_now);

  // Requests to send a signal to the node's ranks. Does not wait for the answer.
  void Signal(int signal_number);
  // Reads the positions of the threads of the node's ranks. The call ends within a time limit; the
  // error names the node. `limits` are the job's limits.
  void GetStacks(const PeerLimits& limits, std::function<void(Result<pb::StacksReply>)> then);
  // Sends input to rank 0 on this node. `end` ends the input after `data`. `taken` is true if
  // the node accepted the input. `then` is not called if the connection breaks.
  void Input(std::string data, bool end, std::function<void(bool taken)> then);
  // Detaches the node. After the answer the job on the node no longer needs this front end. Call it
  // once. The call ends within a time limit; the error names the node.
  void Detach(std::function<void(Result<void>)> then);

  // Drops output that is not shown yet, and all later output.
  void DropOutput() {
    if (reader_) reader_->LetGo();
  }
  // Ends the connection at once in both directions. `why` is for the log.
  void Abort(const std::string& why);
  // Closes the front end's side of the connection. A supervisor without processes then ends; any
  // other supervisor tears its node down.
  void SayGoodbye();
  // Waits, without blocking, until the supervisor has ended, the deadline has passed or the
  // connection is lost. Only the end of the supervisor guarantees that no process is left on the
  // node. Call it after SayGoodbye or Abort.
  void AwaitEnd(Deadline deadline, std::function<void(bool supervisor_ended)> then);

  // Blocks until the supervisor has ended, the deadline has passed or the connection is lost.
  void WaitEnd(Deadline deadline) { link_->WaitEnd(deadline); }
  // Lets the job continue without this front end, even after the client is destroyed.
  void LeaveRunning() { link_->LeaveRunning(); }

  // Returns the last lines of the supervisor's stderr, without the final newline.
  std::string LastOutput() const;
  // Returns the link, which has the node's address and this machine's address as the node sees it.
  const NodeLink& link() const { return *link_; }

 private:
  const std::shared_ptr<LoopPoster> poster_;
  const std::string name_;
  // Link to the agent; shared with the thread that waits for its end.
  const std::shared_ptr<NodeLink> link_;
  StreamHandle stream_;  // descriptor of the link, which gRPC reads and writes
  std::unique_ptr<pb::Agent::Stub> stub_;
  OpenCalls calls_;
  asio::steady_timer watchdog_;  // needed because gRPC can miss a deadline while a write blocks
  std::shared_ptr<EventReader> reader_;
};

}  // namespace dslaunch
