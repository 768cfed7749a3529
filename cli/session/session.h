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

#include "cli/output/job_output.h"
#include "cli/output/shown_output.h"
#include "cli/plan/launch_plan.h"
#include "cli/session/event_log.h"
#include "cli/session/job_story.h"
#include "cli/session/move_decision.h"
#include "cli/session/node_client.h"
#include "cli/session/node_connector.h"
#include "cli/session/outcome.h"
#include "cli/transport/transport.h"
#include "net/certificate_authority.h"

namespace dslaunch {

struct SessionOptions {
  std::string job_id;
  LaunchPlan plan;
  pb::Program program;
  pb::RankOptions ranks;
  uint32_t save_pid = 0;  // of this process, for the nodes' files; 0: there are none
  pb::Timeouts timeouts;
  pb::Policy policy;
  DeviceChoice device = DeviceChoice::kAuto;
  ShownOutput shown;                        // with `detach` nothing is
  std::vector<std::string> stdout_filters;  // of lines that are copied; empty: none are
  std::vector<std::string> stderr_filters;
  TagStyle tags;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_dir;
  uint64_t log_max_bytes = 0;
  std::string description;  // the command line without secrets
  int master_port = 0;
  int rdzv_port = 0;
  std::string network_interface;
  std::string own_address;    // by which other nodes reach this machine; empty: any that they can
  bool json = false;          // the closing block on stdout too
  bool detach = false;        // the job goes on without this front end once it runs
  std::string events_folder;  // for events.jsonl; empty: none is kept
  milliseconds connect_timeout{20'000};
  milliseconds retry_wait{5'000};  // before a node that is not there is first tried again
};

// Runs on the caller's thread. Nodes are reached by detached threads, because an interrupted
// session does not wait for hosts that never answer. So neither the session nor its transport may
// be destroyed once Run has been called: end the process by _exit.
class LaunchSession {
 public:
  LaunchSession(SessionOptions options, Transport& transport, Terminal& terminal);

  // Blocks until the job has ended and every node is empty, or until the bounded wait for that is
  // over. Returns the exit code; everything a user must know has been shown.
  // With `detach` it returns 0 as soon as every worker of every node is started.
  int Run();

  // The job goes on; nothing is known of its end.
  bool detached() const { return detached_; }

  // How the job ended, in one line. After Run.
  const std::string& last_word() const { return last_word_; }

  // Thread-safe: a line for the user while Run runs.
  void Tell(const std::string& text);

 private:
  struct NodeState {
    const PlannedNode* planned = nullptr;
    NodeTarget target;
    std::unique_ptr<NodeClient> client;  // the newest; null before it was reached
    std::optional<pb::NodeFacts> facts;
    std::optional<Error> failure;  // of connecting or preparing
    bool given_up = false;         // it did not end in time
    bool stream_ended = false;     // of Run
    bool ended = false;            // nothing more will come: done, or lost and its link ended
    bool is_empty = false;         // and its ranks have surely ended
    bool silence_said = false;
    bool awaits_move = false;  // it has lost its rendezvous
    bool was_idle = false;     // and had no ranks when it did

    bool has_failed() const { return failure.has_value(); }
    bool is_reached() const { return client != nullptr; }
  };

  // The start (session_start.cc). The last answer of a step leads to the next, if all were good.
  // Once it is sure that the job cannot start, the nodes that have not answered get two seconds
  // more, so that those with the same or another trouble are named too, and none is waited for to
  // its time-out.
  void ConnectAll();
  void OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link);
  void OnAllConnected();
  void GiveUpConnectingSoon();
  bool CanStartWithout(size_t failures) const;
  void PrepareAll();
  Result<pb::PrepareRequest> PrepareRequestFor(size_t index);
  void OnPrepared(size_t index, Result<pb::NodeFacts> facts);
  void RunAll();
  void RunNode(size_t index);
  // Where this node finds the rendezvous.
  std::vector<std::string> EndpointsFor(size_t index) const;
  void FailStart(size_t index, Error error);

  // While it runs (session.cc).
  void OnEvent(size_t index, const pb::NodeEvent& event);
  void OnStreamEnd(size_t index);
  void OnLinkEnded(size_t index, bool is_empty);
  void Abandon(size_t index);
  void TryAgain(size_t index);
  void OnReachedAgain(size_t index, std::unique_ptr<NodeLink> link);
  void Watch();
  void WatchSilence(Clock::time_point now);
  void StopIfLostAtStart(size_t index, const std::string& why);
  void OnSignal(int signal_number);
  void Interrupt(int signal_number);

  // The rendezvous' node is lost (session_move.cc).
  void OnRendezvousLost(size_t index, const pb::RendezvousLost& lost);
  void MoveIfHostIsGone();
  bool IsHostGone() const;
  std::vector<MoveView> MoveViews() const;
  void MoveTo(size_t host);
  void OnMoved(size_t host, const pb::MoveRequest& request);
  void StopWithout(const std::string& why);

  // Leaving the job alone (session_detach.cc).
  void DetachAll();
  void OnDetached(const Result<void>& result);
  int ReportDetached();

  // The end (session_end.cc).
  void ArmTeardownTimer();
  void GiveUpWaiting();
  void EndIfAllEnded();
  void CloseLinks();
  int ReportStartFailure();
  int ReportEnd();
  void Report(const JobEnd& end, bool show);

  bool Says(LogLevel level) const { return level <= options_.log_level; }
  void Say(LogLevel level, const std::string& text) {
    if (Says(level)) output_.Say("dslaunch: " + text);
  }
  std::string SinceStart() const;
  const std::string& NameOf(size_t index) const { return nodes_[index].planned->name; }
  milliseconds dead_after() const { return milliseconds(options_.timeouts.dead_ms()); }

  const SessionOptions options_;
  asio::io_context loop_{1};
  NodeConnector connector_;
  JobOutput output_;
  EventLog events_;
  JobStory story_;
  asio::signal_set signals_;
  asio::steady_timer connect_timer_;
  asio::steady_timer watch_timer_;
  asio::steady_timer teardown_timer_;
  std::vector<NodeState> nodes_;
  std::vector<std::string> names_;                     // of all nodes
  size_t most_slots_ = 0;                              // that a node has
  std::vector<std::unique_ptr<NodeClient>> past_;      // of nodes that were reached again
  std::optional<pb::RendezvousLost> rendezvous_lost_;  // of the newest epoch that lost it
  bool moving_ = false;
  uint64_t begun_epoch_ = 0;  // the newest that a move was to begin
  std::optional<CertificateAuthority> authority_;
  pb::PrepareRequest prepare_;
  pb::RunRequest run_;
  size_t pending_ = 0;      // answers of the current step
  bool giving_up_ = false;  // of connecting
  bool running_ = false;
  bool failed_to_start_ = false;
  bool teardown_armed_ = false;
  bool was_interrupted_ = false;
  bool detaching_ = false;
  bool detached_ = false;
  Clock::time_point interrupted_at_;
  std::string last_word_;
  Clock::time_point started_at_ = Clock::now();
};

}  // namespace dslaunch
