// The rendezvous without a network: what it answers to each message, disconnection and tick. Pure:
// no clock, no threads, no I/O; the gRPC server, tests and simulators drive it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/contract/deadline.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/quorum.h"

namespace dslaunch {

struct CoordinatorOptions {
  std::string job_id;
  std::vector<pb::Node> nodes;
  pb::Timeouts timeouts;
  bool one_machine = false;
};

// One agent's connection; chosen by the caller, never used twice.
using SessionId = uint64_t;

struct Outgoing {
  SessionId session = 0;
  pb::RendezvousMessage message;
  bool end_session = false;  // nothing follows on this session
};

class Coordinator {
 public:
  // The join time-out runs from `now`.
  Coordinator(CoordinatorOptions options, Clock::time_point now);

  // Each returns what to send, in order.
  std::vector<Outgoing> OnMessage(SessionId session, const pb::AgentMessage& message,
                                  Clock::time_point now);
  std::vector<Outgoing> OnDisconnect(SessionId session, Clock::time_point now);
  // Call it at least as often as half a heartbeat.
  std::vector<Outgoing> OnTick(Clock::time_point now);

  enum class Phase { kJoining, kStarting, kRunning, kStopping, kClosed };
  Phase phase() const { return phase_; }
  uint64_t epoch() const { return epoch_; }

 private:
  struct Attendee {
    Member member;
    SessionId session = 0;
    Clock::time_point last_heard;
    bool ready = false;
    bool finished = false;
    bool torn_down = false;
    bool lost = false;
  };

  void Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now);
  void Handle(Attendee& attendee, const pb::AgentMessage& message, Clock::time_point now);
  void TryToForm(Clock::time_point now);
  void Form(Clock::time_point now);
  void Lose(Attendee& attendee, const std::string& why, Clock::time_point now);
  void Stop(const pb::Cause& cause, Clock::time_point now);
  void CloseIfTornDown(Clock::time_point now);
  void CheckBarrierTimes(Clock::time_point now);
  void Refuse(SessionId session, const pb::Cause& cause);
  void Send(SessionId session, pb::RendezvousMessage message, bool end_session = false);
  void Broadcast(const pb::RendezvousMessage& message);
  template <class Predicate>
  bool All(Predicate predicate) const;
  std::string NodeName(uint32_t node_index) const;

  const CoordinatorOptions options_;
  QuorumOptions quorum_options_;
  Phase phase_ = Phase::kJoining;
  uint64_t epoch_ = 0;                      // of the ranks assigned last; 0 before the first
  std::map<uint32_t, Attendee> attendees_;  // by node index
  std::map<SessionId, uint32_t> sessions_;  // of attendees
  std::optional<pb::Cause> cause_;          // set when stopping; kind NONE for success
  Clock::time_point last_tick_;
  Clock::time_point barrier_deadline_;  // of kStarting and kStopping
  std::vector<Outgoing> out_;
};

}  // namespace dslaunch
