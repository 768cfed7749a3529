// The contact with a session's nodes: renews their leases and notices their silence.
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

inline constexpr milliseconds kRenewEvery(1'000);  // longest interval of renewals

// See SessionCore for what all parts have in common.
class ContactCore {
 public:
  ContactCore(const SessionOptions& options, SessionNodes& nodes, JobState& job, const EndCore& end,
              SessionOutbox& out)
      : options_(options), nodes_(nodes), job_(job), end_(end), out_(out), peers_(nodes.size()) {}

  // A new connection to the node is there.
  void OnReached(size_t index);
  // A node runs again.
  void OnRunAgain(size_t index) { peers_[index].silence_warned = false; }
  // The node's next event is awaited from now on.
  void OnListening(size_t index, Clock::time_point now);
  // It is not awaited, because this side does not read: the terminal takes no output, or the stream
  // has ended.
  void OnHolding(size_t index) { peers_[index].silence.Hold(); }
  // The agent's answer, which it gives whatever else it waits for; nullopt: not within the action's
  // time-out. Other failures need not be reported.
  void OnRenewed(size_t index, std::optional<uint64_t> clock_us, Clock::time_point now);
  void SetRenewTimer(Clock::time_point now);
  void OnRenewTimer(Clock::time_point now);
  void SetWatchTimer(Clock::time_point now);
  // The first half of a watch. Asks to stop a job that cannot start without a silent node.
  void OnWatchTimer(Clock::time_point now);
  // The second half. Warns of silent nodes, and stops waiting for them once all nodes are silent.
  void WatchSilence(Clock::time_point now);

  // The node counts as lost.
  bool IsSilent(size_t index, Clock::time_point now) const;
  // For how long there was no sign of life from the node while this side listened.
  Clock::duration SilentFor(size_t index, Clock::time_point now) const {
    return peers_[index].silence.SilentFor(now);
  }
  // For how long there was none, also while this side did not listen.
  Clock::duration SinceLastSeen(size_t index, Clock::time_point now) const {
    return peers_[index].silence.SinceLastSeen(now);
  }

 private:
  struct Peer {
    SilenceWatch silence;                  // silence of the node's events
    std::optional<uint64_t> last_seen_us;  // time in the node's newest answer to a renewal
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
  std::vector<Peer> peers_;  // indexed by node
  std::optional<Clock::time_point> watch_due_;
  // Newest message of any node, even of one that has ended since.
  Clock::time_point newest_contact_;
  Clock::time_point all_silent_until_;  // the end of the last silence of all nodes (the cut)
  Clock::time_point all_back_by_;       // latest time for a message of each node after the cut
  bool all_silent_warned_ = false;
};

}  // namespace dslaunch
