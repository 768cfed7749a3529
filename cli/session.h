// One job as the front end sees it: reaches all nodes at once, starts the job, shows it, and ends
// it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/job_output.h"
#include "cli/launch_plan.h"
#include "cli/outcome.h"
#include "cli/transport.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {

struct SessionOptions {
  std::string job_id;
  LaunchPlan plan;
  pb::Program program;
  pb::Timeouts timeouts;
  DeviceChoice device = DeviceChoice::kAuto;
  Tee tee;
  std::string log_dir;
  int master_port = 0;
  milliseconds connect_timeout{20'000};
};

// Runs on the caller's thread. Transport::Connect is called from a thread per node, detached
// because an interrupted session does not wait for hosts that never answer. So neither the session
// nor its transport may be destroyed once Run has been called: end the process by _exit.
class LaunchSession {
 public:
  LaunchSession(SessionOptions options, Transport& transport, Terminal& terminal);

  // Blocks until the job has ended and every node is empty, or until the bounded wait for that is
  // over. Returns the exit code; everything a user must know has been shown.
  int Run();

 private:
  class EventReader;
  struct NodeState;

  void ConnectAll();
  void OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link);
  void PrepareAll();
  void OnPrepared(size_t index, const grpc::Status& status, const pb::PrepareReply& reply);
  void RunAll();
  void OnEvent(size_t index, const pb::NodeEvent& event);
  void OnStreamEnd(size_t index);
  void OnLinkEnded(size_t index);
  void OnStepDone();
  void Fail(size_t index, Error error);
  void OnSignal(int signal_number);
  void Interrupt(int signal_number);
  void SendStop(const pb::Cause& cause, bool kill_now);
  void ArmTeardownTimer();
  void GiveUpWaiting();
  void EndIfAllEnded();
  bool IsGivenUp(const NodeState& node) const;
  void CloseLinks();
  int ReportStartFailure();
  int ReportEnd();

  const SessionOptions options_;
  Transport& transport_;
  asio::io_context loop_{1};
  JobOutput output_;
  asio::signal_set signals_;
  asio::steady_timer teardown_timer_;
  std::vector<std::unique_ptr<NodeState>> nodes_;
  pb::PrepareRequest prepare_;
  size_t pending_ = 0;  // answers of the current step
  bool preparing_ = false;
  bool running_ = false;
  bool failed_to_start_ = false;
  bool teardown_armed_ = false;
  std::optional<pb::Cause> interrupted_;  // set when it was the first thing to go wrong
  bool was_interrupted_ = false;
  Clock::time_point interrupted_at_;
  std::vector<pb::WorkerEnded> workers_ended_;
  Clock::time_point started_at_ = Clock::now();
};

}  // namespace dslaunch
