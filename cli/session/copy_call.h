// The front end's end of one Copy call (proto/agent.proto).
#pragma once

#include <memory>
#include <utility>

#include "cli/session/copy_list.h"
#include "cli/transport/agent_copy.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/blocking_stream.h"

namespace dslaunch {

// Sends a list of copies to a node, and of their content what the node lacks. At most
// CopyGate::kAtOnce run in a process; the others wait for their turn. Ends when the node has sent
// and accepted nothing for 30 s, and never while bytes move.
class CopyCall final : public BlockingStream<grpc::ClientBidiReactor<pb::CopyInput, pb::CopyOutput>,
                                             pb::CopyOutput, pb::CopyInput> {
 public:
  // `counted`: of the channel's owner (OpenCalls), released last. Begins the call.
  static std::shared_ptr<CopyCall> Start(pb::Agent::Stub& stub,
                                         std::shared_ptr<const void> counted);

  // Once, on a thread of its own; blocks. The error does not name the node.
  Result<pb::CopyDone> Send(const CopyList& list);

  // In place of Send.
  void Abandon();

  void OnDone(const grpc::Status&) override { SetDone(); }

 private:
  explicit CopyCall(std::shared_ptr<const void> counted) : counted_(std::move(counted)) {}

  Result<pb::CopyDone> SendNow(const CopyList& list);
  Result<CopyGate::Turn> AwaitTurn();
  Result<void> SendList(const CopyList& list);
  Result<void> SendParts(const CopyList& list, const pb::CopyWanted& wanted);
  Result<void> SendFile(const CopyList& list, const pb::CopyPart& part);
  // Waits until the node has received so much that more may be on its way.
  Result<void> AwaitWindow();
  void OnReceived(uint64_t bytes);
  // The next output; one that is empty is a sign of life.
  Result<pb::CopyOutput> NextOutput();
  Error Broken() const;

  const std::shared_ptr<const void> counted_;
  grpc::ClientContext context_;
  uint64_t sent_bytes_ = 0;
  uint64_t received_bytes_ = 0;
  uint64_t window_bytes_ = 0;
  // For the node's speed: the bytes that it had received at that time.
  Clock::time_point measured_at_ = Clock::now();
  uint64_t measured_bytes_ = 0;
};

}  // namespace dslaunch
