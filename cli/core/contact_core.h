// Keeps contact with a session's nodes: renews their leases and detects silent nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/core/end_core.h"
#include "cli/core/job_state.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "cli/core/silence.h"

namespace dslaunch {

inline constexpr milliseconds kRenewEvery(1'000);  // longest time between two renewals of a lease

// The part of SessionCore that renews leases and measures silence. Changes only its own state and
// the objects that it gets by a reference that is not const.
class ContactCore {
 public:
  ContactCore(const SessionOptions& options, SessionNodes& nodes, JobState& job, const EndCore& end,
              SessionOutbox& out)
      : options_(options), nodes_(nodes), job_(job), end_(end), out_(out), peers_(nodes.size()) {}

  // Resets the node's contact state, because a new connection to the node exists.
  void OnReached(size_t index);
  // Allows a new warning about the node's silence, because the node runs again.
  void OnRunAgain(size_t index) { peers_[index].silence_warned = false; }
  // Starts to measure the node's silence, because the session now waits for the node's next event.
  void OnListening(size_t index, Clock::time_point now);
  // Stops measuring the node's silence, because the session stops reading the node's events: the
  // terminal accepts no output, or the stream has ended.
  void OnHolding(size_t index) { peers_[index].silence.Hold(); }
  // Handles the agent's answer to a renewal. The agent answers renewals even while it waits for
  // other operations. `clock_us` is nullopt if the agent did not answer within the action's
  // time-out. Other failures need not be reported.
  void OnRenewed(size_t index, std::optional<uint64_t> clock_us, Clock::time_point now);
  void SetRenewTimer(Clock::time_point now);
  void OnRenewTimer(Clock::time_point now);
  void SetWatchTimer(Clock::time_point now);

  // Does the first part of the watch timer's work: requests to stop a job that cannot start without
  // a silent node.
  void OnWatchTimer(Clock::time_point now);

  // Does the second part of the watch timer's work: warns of silent nodes, and stops waiting for
  // them once all nodes are silent.
  void WatchSilence(Clock::time_point now);

  // Returns whether the node has been silent for so long that it counts as lost.
  bool IsSilent(size_t index, Clock::time_point now) const;
  // Returns the time since the node's last sign of life, counting only time in which the session
  // read from the node.
  Clock::duration SilentFor(size_t index, Clock::time_point now) const {
    return peers_[index].silence.SilentFor(now);
  }
  // Returns the time since the node's last sign of life, including time in which the session did
  // not read from the node.
  Clock::duration SinceLastSeen(size_t index, Clock::time_point now) const {
    return peers_[index].silence.SinceLastSeen(now);
  }

 private:
  struct Peer {
    SilenceWatch silence;                  // measures the silence of the node's events
    std::optional<uint64_t> last_seen_us;  // clock of the node in its newest answer to a renewal
    bool silence_warned = false;
  };

  milliseconds dead_after() const { return milliseconds(options_.job.timeouts().dead_ms()); }
  milliseconds watch_every() const;
  milliseconds PatienceWith(size_t index) const;
  void NoteContact(Clock::time_point now);
  void WarnOfSilence(size_t index, Clock::time_point now);
  void WarnIfAllAreSilent(Clock::time_point now);

  const SessionOptions& options_;
  SessionNodes& nodes_;
  JobState& job_;
  const EndCore& end_;
  SessionOutbox& out_;
  std::vector<Peer> peers_;  // contact state of each node, indexed by node
  std::optional<Clock::time_point> watch_due_;
  // Time of the newest message from any node, including nodes that have ended in the meantime.
  Clock::time_point newest_contact_;
  // End of the last period in which all nodes were silent (the cut).
  Clock::time_point all_silent_until_;
  // Time by which every node must have sent a message after the cut.
  Clock::time_point all_back_by_;
  bool all_silent_warned_ = false;
};

}  // namespace dslaunch
