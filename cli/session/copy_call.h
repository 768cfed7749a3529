// The front end's end of one Copy call (proto/agent.proto).
#pragma once

#include <memory>
#include <utility>

#include "cli/session/copy_list.h"
#include "cli/transport/agent_copy.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/blocking_stream.h"

namespace dslaunch {

// Sends a node the list of copies, and the content that the node lacks. At most CopyGate::kAtOnce
// calls run in a process; others wait for their turn. Ends if the node neither sends nor accepts
// anything for 30 s, but never while bytes move.
class CopyCall final : public BlockingStream<grpc::ClientBidiReactor<pb::CopyInput, pb::CopyOutput>,
                                             pb::CopyOutput, pb::CopyInput> {
 public:
  // Begins the call. `counted`, from the channel's OpenCalls, is released last.
  static std::shared_ptr<CopyCall> Start(pb::Agent::Stub& stub,
                                         std::shared_ptr<const void> counted);

  // Call it once, on a thread of its own, because it blocks. The error does not name the node.
  Result<pb::CopyDone> Send(const CopyList& list);

  // Call it in place of Send to end the call.
  void Abandon();

  void OnDone(const grpc::Status&) override { SetDone(); }

 private:
  explicit CopyCall(std::shared_ptr<const void> counted) : counted_(std::move(counted)) {}

  Result<pb::CopyDone> SendNow(const CopyList& list);
  Result<CopyGate::Turn> AwaitTurn();
  Result<void> SendList(const CopyList& list);
  Result<void> SendParts(const CopyList& list, const pb::CopyWanted& wanted);
  Result<void> SendFile(const CopyList& list, const pb::CopyPart& part);
  // Waits until the node has received enough that more bytes may be in transit.
  Result<void> AwaitWindow();
  void OnReceived(uint64_t bytes);
  // Returns the next output. An empty output is only a sign of life.
  Result<pb::CopyOutput> NextOutput();
  Error Broken() const;

  const std::shared_ptr<const void> counted_;
  grpc::ClientContext context_;
  uint64_t sent_bytes_ = 0;
  uint64_t received_bytes_ = 0;
  uint64_t window_bytes_ = 0;
  // When the node's speed was last measured, and how many bytes it had received then.
  Clock::time_point measured_at_ = Clock::now();
  uint64_t measured_bytes_ = 0;
};

}  // namespace dslaunch
