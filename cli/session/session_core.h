// The decisions of a session, without a network: its actions for each answer, event, signal and
// timer. Pure: no clock, no threads, no I/O; LaunchSession, tests and the simulator drive it.
//
//   connecting -> preparing -> running -> ending        each step begins once all nodes answered
//
// A node that is lost while the job runs is reached again, if the job can be restarted. When the
// node that hosts the rendezvous is lost, another is named once the lost one has surely ended its
// ranks (session_core_failover.cc). Once the end has begun it has a bound, whatever the nodes do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/session/end_decision.h"
#include "cli/session/failover_decision.h"
#include "cli/session/job_state.h"
#include "cli/session/outcome.h"
#include "cli/session/session_action.h"
#include "cli/session/session_options.h"
#include "cli/session/silence.h"

namespace dslaunch {

inline constexpr milliseconds kRenewEvery(1'000);  // of the nodes' leases, at the most seldom
// After the pause of a node that is tried again and again.
inline constexpr milliseconds kMaxRetryWait(60'000);

// Numeric; OwnAddress of NodeLink may be empty.
struct NodeAddresses {
  std::string node;
  std::string own;
};

struct SessionEnd {
  enum class Kind {
    kNotStarted,   // a node could not be reached or prepared
    kInterrupted,  // by the user, before anything was started
    kDetached,     // the job continues without this front end
    kEnded,
  };
  Kind kind = Kind::kEnded;
  JobEnd job = {};
  std::vector<std::string> lines = {};  // for the user, before the closing block
};

// Not thread-safe. Each On... returns what to do, in order; after Finish all of them return
// nothing.
class SessionCore {
 public:
  using Actions = std::vector<SessionAction>;

  // For the simulator's own test: a simulator that finds nothing wrong with this bug would find
  // nothing at all.
  enum class PlantedBug {
    kNone,
    // The failover begins as soon as the loss is reported, before the lost node's lease is over.
    kFailsOverTooEarly,
  };

  // `options` outlives it.
  SessionCore(const SessionOptions& options, Clock::time_point now,
              PlantedBug bug = PlantedBug::kNone);

  // The start. The last answer of a step leads to the next, if all were good. Once it is sure that
  // the job cannot start, the nodes that have not answered get two seconds more, so that those
  // with the same or another trouble are named too, and none is waited for to its time-out.
  Actions Start(Clock::time_point now);
  // The job's keys cannot be made.
  Actions OnCannotStart(Error error);
  // The next two also answer later attempts to reach a node.
  Actions OnConnected(size_t index, Result<NodeAddresses> addresses, Clock::time_point now);
  Actions OnPrepared(size_t index, Result<pb::PreparedNode> info, Clock::time_point now);

  // While the job runs. Output of ranks is no event here; it only counts as a sign of life of the
  // node.
  Actions OnEvent(size_t index, const pb::NodeEvent& event, Clock::time_point now);
  void OnStatus(const pb::WorkerStatus& status) { job_state_.OnStatus(status); }
  Actions OnStreamEnd(size_t index, Clock::time_point now);
  // The node's agent sent `what`, which no agent sends. Nothing that it says counts any more, and
  // the job ends.
  Actions OnBrokenRules(size_t index, const std::string& what, Clock::time_point now);
  // `last_output` of its supervisor; often empty.
  Actions OnLinkEnded(size_t index, bool supervisor_ended, const std::string& last_output,
                      Clock::time_point now);
  // `host`: the node that the request named.
  Actions OnFailoverAnswered(size_t index, size_t host, const Result<pb::RendezvousOpened>& opened);
  // nullopt: not within the action's time-out. Other failures need not be reported. An answer is a
  // sign of life: the agent gives it whatever else it waits for.
  Actions OnRenewed(size_t index, std::optional<uint64_t> clock_us, Clock::time_point now);
  // From now on the node's next event is awaited; or it is not, because our own terminal holds up
  // what the node said.
  void OnListening(size_t index, Clock::time_point now);
  void OnHolding(size_t index) { nodes_[index].silence.Hold(); }
  Actions OnDetached(const Result<void>& result, Clock::time_point now);

  // The user.
  Actions OnSignal(int signal_number, Clock::time_point now);

  // Time. Each expires when its SetTimer said, or later.
  Actions OnConnectTimer();
  Actions OnRenewTimer(Clock::time_point now);
  Actions OnWatchTimer(Clock::time_point now);
  // `reader_still_for`: as of OnReader.
  Actions OnTeardownTimer(std::optional<Clock::duration> reader_still_for, Clock::time_point now);

  // Our own terminal, or what else reads our output, holds up what a node says, and has taken
  // nothing for so long; nullopt: it holds nothing up. To be called as often as OnWatchTimer.
  Actions OnReader(std::optional<Clock::duration> still_for);

  // After Finish: Slurm has ended the job's step, in its own words.
  void OnCancelled(const std::string& how) { cancelled_ = how; }
  // After Finish.
  SessionEnd End() const;

  const JobState& job_state() const { return job_state_; }
  const std::vector<std::string>& names() const { return names_; }  // of all nodes
  // Empty: the node did not report it.
  std::string JobFolderOf(size_t index) const;
  // Some output of ranks was not shown, because the terminal or pipe did not take it.
  bool output_is_dropped() const { return output_is_dropped_; }
  // It did not end in time: its end is not waited for any longer.
  bool HasGivenUp(size_t index) const { return nodes_[index].given_up; }
  // For how long no sign of life from a node while somebody listened.
  Clock::duration SilenceOf(size_t index, Clock::time_point now) const {
    return nodes_[index].silence.SilentFor(now);
  }

 private:
  struct NodeState {
    const Host* planned = nullptr;
    bool is_reached = false;  // once at least; what follows is of its newest connection
    NodeAddresses addresses;
    SilenceWatch silence;                  // of its events
    std::optional<uint64_t> last_seen_us;  // of its answers to renewals: the newest
    bool is_held = false;  // reached again while no rendezvous is there for it to join
    bool is_preparing = false;
    size_t prepared_for = 0;    // the rendezvous' node that its agent was told
    bool goodbye_said = false;  // or it was aborted: its lease is not renewed any more
    int attempts = 0;           // to reach it again, since its ranks started last
    bool is_tried = false;      // one of them is under way
    std::optional<pb::PreparedNode> info;
    std::optional<Error> failure;  // of connecting or preparing
    bool given_up = false;         // it did not end in time
    bool stream_ended = false;     // of Run
    bool ended = false;            // nothing more will come: done, or lost and its link ended
    bool is_empty = false;         // and its ranks have surely ended
    bool silence_warned = false;
    bool awaits_failover = false;                  // it has lost its rendezvous
    bool was_idle = false;                         // and had no ranks when it did
    std::optional<Clock::time_point> given_up_at;  // the host reported it as lost

    bool has_failed() const { return failure.has_value(); }
    bool is_seen() const { return is_reached && !ended; }
  };

  // The start (session_core_start.cc).
  void FillPrepare();
  void OnFirstConnected(size_t index, Result<NodeAddresses> addresses, Clock::time_point now);
  void OnAllConnected();
  bool CanStartWithout(size_t failures) const;
  size_t Failures() const;
  // Its own command tells it what to run (pb::OwnPart): nothing of that crosses the network.
  bool HasOwnPart(size_t index) const {
    return options_.plan.launcher == Launcher::kPerNode && index > 0;
  }
  void PrepareMore();
  void Prepare(size_t index);
  void OnFirstPrepared(size_t index, Result<pb::PreparedNode> info, Clock::time_point now);
  void RunAll(Clock::time_point now);
  void Run(size_t index);
  // Where this node finds the rendezvous.
  std::vector<std::string> EndpointsFor(size_t index) const;
  void FailStart(size_t index, Error error);
  void FailStart();

  // While it runs (session_core.cc).
  void EndLink(size_t index, bool is_empty, const std::string& last_output, Clock::time_point now);
  void Abandon(size_t index);
  void AbandonGivenUp(Clock::time_point now);
  void Reconnect(size_t index);
  void StopConnecting();
  void OnConnectedAgain(size_t index, Result<NodeAddresses> addresses);
  void OnPreparedAgain(size_t index, Result<pb::PreparedNode> info);
  void WatchSilence(Clock::time_point now);
  // Tells once in an attempt that some ranks have succeeded for long while others run.
  void WatchUnevenEnd(Clock::time_point now);
  void NoteContact(Clock::time_point now);
  milliseconds PatienceWith(size_t index) const;
  bool IsSilent(size_t index, Clock::time_point now) const;
  void WarnOfSilence(size_t index, Clock::time_point now);
  void WarnIfAllAreSilent(Clock::time_point now);
  void StopIfLostAtStart(size_t index, const std::string& why, Clock::time_point now);
  void Interrupt(int signal_number, Clock::time_point now);

  // The rendezvous' node is lost (session_core_failover.cc).
  void OnRendezvousLost(size_t index, const pb::RendezvousLost& lost, Clock::time_point now);
  bool IsHostLost() const;
  void FailOverIfHostIsGone(Clock::time_point now);
  bool IsHostGone(Clock::time_point now) const;
  std::vector<FailoverView> FailoverViews(Clock::time_point now) const;
  void FailOverTo(size_t host, Clock::time_point now);
  void OnFailedOver();
  void StopWithout(const std::string& why, Clock::time_point now);

  // The end (session_core_end.cc).
  void DetachAll();
  void ArmTeardownTimer(Clock::time_point now);
  void DropOutput();
  void GiveUpWaiting();
  EndView EndViewOf(size_t index) const;
  void EndIfAllEnded(Clock::time_point now);
  void Finish();
  SessionEnd StartFailure() const;

  Actions Take() { return std::exchange(out_, {}); }
  template <class Action>
  void Do(Action action) {
    out_.emplace_back(std::move(action));
  }
  bool ShouldLog(LogLevel level) const {
    return !options_.job_folder.empty() || level <= options_.log_level;
  }
  void Log(LogLevel level, const std::string& text) {
    if (ShouldLog(level)) Do(action::Log{level, text});
  }
  void Record(action::Record::Kind kind, size_t index, const std::string& text) {
    Do(action::Record{kind, index, text});
  }
  void StopNode(size_t index, const pb::Cause& cause, bool kill_now = false) {
    Do(action::Stop{index, cause, kill_now});
  }
  void SayGoodbye(size_t index);
  void Abort(size_t index, const std::string& why);
  std::string SinceStart(Clock::time_point now) const;
  const std::string& NameOf(size_t index) const { return names_[index]; }
  milliseconds dead_after() const { return milliseconds(options_.job.timeouts().dead_ms()); }
  // Within which a node tears itself down.
  milliseconds teardown_limit() const;
  milliseconds watch_every() const;
  milliseconds renew_every() const;

  const SessionOptions& options_;
  const PlantedBug bug_;
  const Clock::time_point started_at_;
  JobState job_state_;
  std::vector<NodeState> nodes_;
  std::vector<std::string> names_;
  size_t most_slots_ = 0;  // that a node has
  pb::PrepareRequest prepare_;
  pb::RunRequest run_;
  size_t pending_ = 0;          // answers of the current step
  size_t next_to_prepare_ = 0;  // for the start
  size_t num_preparing_ = 0;
  size_t most_preparing_ = 0;
  bool giving_up_ = false;  // of connecting
  bool connecting_stopped_ = false;
  bool running_ = false;
  bool failed_to_start_ = false;
  std::optional<Clock::time_point> watch_due_;
  Clock::time_point newest_contact_;    // with any node, also one that has ended since
  Clock::time_point all_silent_until_;  // the end of the last silence of all nodes,
  Clock::time_point all_back_by_;       // and when each node must have been heard after it
  bool all_silent_warned_ = false;
  std::optional<Clock::time_point> newest_success_;    // of a rank, in this attempt; none: told
  std::optional<pb::RendezvousLost> rendezvous_lost_;  // of the newest attempt that lost it
  bool lost_said_by_host_ = false;                     // which had given the rendezvous up
  bool failing_over_ = false;                          // the new host's answer is awaited
  pb::FailoverRequest failover_;                       // the newest
  uint64_t begun_attempt_ = 0;                         // the newest that a failover was to begin
  size_t needed_ = 0;  // the node whose end was last found to be waited for
  bool teardown_armed_ = false;
  bool teardown_is_brief_ = false;  // the timer was set for silent nodes alone
  bool output_is_dropped_ = false;
  bool was_interrupted_ = false;
  std::optional<Clock::time_point> interrupted_at_;
  bool detaching_ = false;
  bool detached_ = false;
  bool finished_ = false;
  std::string cancelled_;
  Actions out_;
};

}  // namespace dslaunch
