// Provides a separate connection to a node, to inspect the node itself or a job that runs or ran on
// the node.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/mutex.h"
#include "cli/commands/job_view.h"
#include "cli/launchers/start_all.h"
#include "cli/session/job_record.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/transport.h"
#include "proto/agent.grpc.pb.h"
#include "proto/inspect.grpc.pb.h"
#include "proto/wire/open_calls.h"

namespace dslaunch {

// Time limit of connecting to a node for an inspection.
inline constexpr milliseconds kConnectTimeout(20'000);

// Time limit of disconnecting from a node after an inspection.
inline constexpr milliseconds kLeaveTimeout(3'000);

// A way to reach a node.
struct NodeWay {
  Launcher launcher = Launcher::kSsh;
  NodeTarget target;
  SshOptions ssh;
  // Words that run a command on a node (LaunchPlan::exec_command).
  std::vector<std::string> exec_command = {};
  // GPU shares by host; empty if the inspector needs no GPU.
  std::map<std::string, SlurmShare> slurm_shares = {};
};

// An inspection of a node over its own connection. The destructor ends every call over the
// inspection and waits at most 10 s for the calls registered by BeginCall. The destructor must not
// run on one of gRPC's threads. Thread-compatible.
class NodeInspection {
 public:
  // Connects in the role `kind`, which is kAttach or kRead. Blocks until `deadline` at most. Errors
  // name the node and give a hint.
  static Result<std::unique_ptr<NodeInspection>> Open(const JobRecord& record, size_t node,
                                                      AgentRole::Kind kind,
                                                      const AgentBinary& agent, Deadline deadline);

  // Connects in the role kRead to a node that need not have a job. Blocks until `deadline` at most.
  // Errors name the node and give a hint.
  static Result<std::unique_ptr<NodeInspection>> Open(const NodeWay& way, const AgentBinary& agent,
                                                      Deadline deadline);

  ~NodeInspection();
  NodeInspection(const NodeInspection&) = delete;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Registers an asynchronous call over the channel. The owner of the call's state must keep the
  // returned value as long as that state, and release it last.
  std::shared_ptr<const void> BeginCall() { return calls_.Begin(); }

  // Ends every call over the inspection, and ends the inspector process on the node.
  void End() { link_->Abort("the inspection is over"); }

  // Waits until the inspector has exited. Returns false if the deadline passes first. Precondition:
  // End() was called.
  bool WaitEnd(Deadline deadline) { return link_->WaitEnd(deadline); }

 private:
  static Result<std::unique_ptr<NodeInspection>> Open(const NodeWay& way, const AgentRole& role,
                                                      const AgentBinary& agent, Deadline deadline);

  NodeInspection(std::unique_ptr<NodeLink> link, std::shared_ptr<grpc::Channel> channel)
      : link_(std::move(link)), channel_(std::move(channel)) {}

  const std::unique_ptr<NodeLink> link_;
  const std::shared_ptr<grpc::Channel> channel_;
  OpenCalls calls_;
};

// Returns the folder in which a node stores the job's files.
pb::JobPlace PlaceOf(const JobRecord& record, size_t node);

// Opens an inspection and returns what the node reports about the job. Blocks until `deadline` at
// most.
Result<pb::JobSight> InspectNode(const JobRecord& record, size_t node, const AgentBinary& agent,
                                 Deadline deadline);

// Opens an inspection and returns the stacks of the job's ranks on the node. Blocks until
// `deadline` at most.
Result<pb::StacksReply> StacksOfNode(const JobRecord& record, size_t node,
                                     const pb::StacksRequest& request, const AgentBinary& agent,
                                     Deadline deadline);

// Opens an inspection and removes the job's files from the node. Blocks until `deadline` at most.
Result<void> RemoveFromNode(const JobRecord& record, size_t node, const AgentBinary& agent,
                            Deadline deadline);

// Sends a request over an inspection and returns the node's facts about itself. `node` is the
// node's name for messages. If the answer has not arrived by `deadline`, ends the inspection and
// returns an error.
Result<pb::NodeInfo> RequestNodeInfo(NodeInspection& inspection, const std::string& node,
                                     const pb::NodeInfoRequest& request, Deadline deadline);

// Makes the node listen for other nodes and returns its answer; an error after `deadline`.
Result<pb::ListenReply> ListenOnNode(NodeInspection& inspection, const std::string& node,
                                     const pb::ListenRequest& request, Deadline deadline);

// Makes the node try to reach a listening node and returns its answer; an error after `deadline`.
Result<pb::ReachReply> ReachFromNode(NodeInspection& inspection, const std::string& node,
                                     const pb::ReachRequest& request, Deadline deadline);

// Makes the node measure itself and returns its answer; an error after `deadline`.
Result<pb::NodeMeasurement> MeasureOnNode(NodeInspection& inspection, const std::string& node,
                                          const pb::MeasureRequest& request, Deadline deadline);

// Makes the node serve a measurement of the network and returns its answer; an error after
// `deadline`.
Result<pb::ServeLinkReply> ServeLinkOnNode(NodeInspection& inspection, const std::string& node,
                                           const pb::ServeLinkRequest& request, Deadline deadline);

// Makes the node measure the network to a serving node and returns its answer; an error after
// `deadline`.
Result<pb::LinkMeasurement> MeasureLinkFromNode(NodeInspection& inspection, const std::string& node,
                                                const pb::MeasureLinkRequest& request,
                                                Deadline deadline);

// Time for which AskAll waits for further answers after a deciding answer.
inline constexpr milliseconds kLateAnswers(2'000);

// Calls `ask` with 0 to `count` - 1 at once, each on a separate thread. Returns the answers at
// `deadline`, or kLateAnswers after an answer for which `decides` returns true; missing answers are
// nullopt. Late threads continue until their own deadlines, so `ask` and `decides` must own their
// data.
template <class T>
std::vector<std::optional<T>> AskAll(size_t count, Deadline deadline,
                                     const std::function<T(size_t)>& ask,
                                     const std::function<bool(const T&)>& decides = nullptr) {
  struct Shared {
    explicit Shared(size_t count) : answers(count), missing(count) {}
    Mutex mutex;
    CondVar changed;
    std::vector<std::optional<T>> answers DSL_GUARDED_BY(mutex);
    size_t missing DSL_GUARDED_BY(mutex);
    bool decided DSL_GUARDED_BY(mutex) = false;
  };
  auto shared = std::make_shared<Shared>(count);
  for (size_t i = 0; i < count; ++i) {
    std::thread([shared, ask, decides, i] {
      T answer = ask(i);
      const bool decided = decides && decides(answer);
      const MutexLock lock(shared->mutex);
      shared->decided = shared->decided || decided;
      shared->answers[i] = std::move(answer);
      --shared->missing;
      shared->changed.NotifyAll();
    }).detach();
  }
  const MutexLock lock(shared->mutex);
  shared->changed.WaitUntil(shared->mutex, deadline.when(), [&]() DSL_REQUIRES(shared->mutex) {
    return shared->missing == 0 || shared->decided;
  });
  shared->changed.WaitUntil(shared->mutex,
                            std::min(deadline.when(), Deadline::After(kLateAnswers).when()),
                            [&]() DSL_REQUIRES(shared->mutex) { return shared->missing == 0; });
  return shared->answers;
}

}  // namespace dslaunch
