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
  // The connection is over once nothing has arrived on it for `silent_after`.
  NodeClient(asio::io_context& loop, std::shared_ptr<LoopPoster> poster, std::string name,
             std::unique_ptr<NodeLink> link, milliseconds silent_after);
  ~NodeClient();
  NodeClient(const NodeClient&) = delete;

  // Once. Bounded; the error names the node.
  void Prepare(pb::PrepareRequest request, std::function<void(Result<pb::PreparedNode>)> then);
  // Before Prepare. Bounded by progress; the error names the node.
  void Copy(std::shared_ptr<const CopyList> list, std::function<void(Result<pb::CopyDone>)> then);
  // Once, after Prepare. `limits` of the job, which the node's events must keep.
  void Run(pb::RunRequest request, EventReader::Handlers handlers, const PeerLimits& limits);
  // Renews the node's lease. nullopt: no answer arrived in time; other failures are not reported.
  void Renew(std::optional<uint64_t> last_seen_us, milliseconds timeout,
             std::function<void(std::optional<uint64_t> clock_us)> then);
  // After the node reported RendezvousLost. Bounded; the error names the node.
  void Failover(const pb::FailoverRequest& request,
                std::function<void(Result<pb::RendezvousOpened>)> then);
  // These two do not wait for their answer.
  void Stop(const pb::Cause& cause, bool kill_now);
  void Signal(int signal_number);
  // Reads where the threads of the node's ranks are. Bounded; the error names the node. `limits` of
  // the job.
  void GetStacks(const PeerLimits& limits, std::function<void(Result<pb::StacksReply>)> then);
  // Sends input to rank 0 of this node. `taken`: the node accepted it. `then` is called unless the
  // connection breaks.
  void Input(std::string data, bool end, std::function<void(bool taken)> then);
  // Once. From the answer on the job on that node no longer needs this front end. Bounded; the
  // error names the node.
  void Detach(std::function<void(Result<void>)> then);

  // Output that is not shown yet is left out from now on.
  void DropOutput() {
    if (reader_) reader_->LetGo();
  }
  // Ends the connection at once.
  void Abort(const std::string& why);
  // Closes our end: a supervisor with nothing left to do ends, any other tears its node down.
  void SayGoodbye();
  // After our end is closed: waits, without blocking, until the supervisor has ended, the deadline
  // has passed or the connection is lost. Only the first guarantees that no process is left there.
  void AwaitEnd(Deadline deadline, std::function<void(bool supervisor_ended)> then);
  // AwaitEnd, blocking.
  void WaitEnd(Deadline deadline) { link_->WaitEnd(deadline); }
  // The job continues without this front end, also after this is destroyed.
  void LeaveRunning() { link_->LeaveRunning(); }

  // The last lines of the supervisor's stderr, without the final newline.
  std::string LastOutput() const;
  // Its address, and this machine's address as it sees it.
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
