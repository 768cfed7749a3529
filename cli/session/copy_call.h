// Implements the front end's side of a Copy call (proto/agent.proto).
#pragma once

#include <memory>
#include <utility>

#include "cli/session/copy_list.h"
#include "cli/transport/agent_copy.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/blocking_stream.h"

namespace dslaunch {

// Sends a node the list of copies, and the content that the node lacks. At most CopyGate::kAtOnce
// calls send concurrently in a process; others wait for their turn. The call fails if the node
// neither sends nor accepts any bytes for 30 s, but never while bytes are transferred.
class CopyCall final : public BlockingStream<grpc::ClientBidiReactor<pb::CopyInput, pb::CopyOutput>,
                                             pb::CopyOutput, pb::CopyInput> {
 public:
  // Begins the call. `counted`, a result of the channel's OpenCalls, is released last.
  static std::shared_ptr<CopyCall> Start(pb::Agent::Stub& stub,
                                         std::shared_ptr<const void> counted);

  // Sends the copies and waits for the node's answer. Call it once, on a separate thread, because
  // it blocks. The error does not name the node.
  Result<pb::CopyDone> Send(const CopyList& list);

  // Ends the call without sending the copies. Call it instead of Send.
  void Abandon();

  void OnDone(const grpc::Status&) override { SetDone(); }

 private:
  explicit CopyCall(std::shared_ptr<const void> counted) : counted_(std::move(counted)) {}

  Result<pb::CopyDone> SendNow(const CopyList& list);
  Result<CopyGate::Turn> AwaitTurn();
  Result<void> SendList(const CopyList& list);
  Result<void> SendParts(const CopyList& list, const pb::CopyWanted& wanted);
  Result<void> SendFile(const CopyList& list, const pb::CopyPart& part);
  // Waits until the node has received enough bytes that more may be in transit.
  Result<void> AwaitWindow();
  void OnReceived(uint64_t bytes);
  // Returns the next output of the node. An empty output is only a sign of life.
  Result<pb::CopyOutput> NextOutput();
  Error Broken() const;

  const std::shared_ptr<const void> counted_;
  grpc::ClientContext context_;
  uint64_t sent_bytes_ = 0;
  uint64_t received_bytes_ = 0;
  uint64_t window_bytes_ = 0;
  // Time of the last measurement of the node's speed, and the number of bytes that the node had
  // received at that time.
  Clock::time_point measured_at_ = Clock::now();
  uint64_t measured_bytes_ = 0;
};

}  // namespace dslaunch
