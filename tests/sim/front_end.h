// The front end: a model of cli/session/session*.cc, which are bound to sockets, gRPC and a
// terminal. What it decides where that code is pure is the real thing: JobStory, DecideMove,
// DecideEnd, DecideJobEnd. The rest is written here as it is there, under the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cli/session/job_story.h"
#include "cli/session/move_decision.h"
#include "tests/sim/node_visit.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {

class Rendezvous;

class FrontEnd {
 public:
  explicit FrontEnd(World& world);

  Process& process() { return process_; }
  bool is_over() const { return process_.gone; }
  std::optional<int> exit_code() const { return exit_code_; }  // none: it was killed, or still runs
  int moves() const { return moves_; }

  void Start();

  // What comes of a node, on this process.
  void OnEvent(NodeVisit& visit, const pb::NodeEvent& event);
  void OnAlive(NodeVisit& visit);
  void OnStreamEnd(NodeVisit& visit);
  void OnLinkClosed(NodeVisit& visit, bool keeper_ended);

  // Faults.
  void Crash();
  void LosePower();
  void Interrupt();

 private:
  struct NodeState {
    NodeVisit* client = nullptr;  // the newest
    bool preparing = false;
    bool prepared = false;
    bool failed = false;
    bool stream_ended = false;
    bool ended = false;
    bool awaits_move = false;
    bool was_idle = false;
    bool trying = false;
    bool over = false;          // the goodbye was said: the lease is not renewed
    bool link_closed = false;   // from the other side
    bool keeper_ended = false;  // that is why
    bool is_empty = false;      // its ranks have surely ended
    Clock::time_point heard_at;
    std::optional<uint64_t> heard_us;                  // of the answers to renewals
    uint64_t calls = 0;                                // tells what a timer belongs to
    std::optional<Clock::time_point> listening_since;  // while what it says is awaited

    bool is_heard() const { return client != nullptr && !ended; }
  };

  // The start.
  void OnConnected(uint32_t index, bool reached);
  void OnAllConnected();
  bool CanStartWithout(size_t failures) const;
  void Prepare(uint32_t index);
  void OnPrepared(uint32_t index, bool ok, Rendezvous* endpoint);
  void OnPreparedAtStart(uint32_t index, bool ok);
  void OnPreparedAgain(uint32_t index, bool ok);
  void RunAll();
  void RunNode(uint32_t index);

  // While it runs.
  void Abandon(size_t index);
  void SayGoodbye(size_t index);
  void OnLinkEnded(size_t index, bool is_empty);
  void TryAgain(size_t index);
  void Attempt(uint32_t index);
  void Watch();
  void WatchSilence(Clock::time_point now);
  void StopIfLostAtStart(size_t index);
  void RenewAll();
  void Renew(NodeVisit& visit, std::optional<uint64_t> heard_us);
  bool Reach(uint32_t index);

  // The rendezvous is lost.
  void OnRendezvousLost(size_t index, const pb::RendezvousLost& lost);
  bool IsHostGone() const;
  std::vector<MoveView> MoveViews() const;
  void MoveIfHostIsGone();
  void MoveTo(uint32_t host);
  void OnMoveAnswer(uint32_t host, const pb::MoveRequest& request, bool ok);
  void OnMoved(uint32_t host, const pb::MoveRequest& request);
  void StopWithout();
  void SendMove(uint32_t index, const pb::MoveRequest& request);
  void OnFollowed(uint32_t index, bool ok);

  // The end.
  void ArmTeardownTimer();
  void SetTeardownTimer(int64_t ms);
  void GiveUpWaiting();
  void EndIfAllEnded();
  void Finish();
  void SendStop(size_t index, const pb::Cause& cause);

  template <class MakeText>
  void Say(MakeText make_text) const {
    world_.Say("front end", make_text);
  }
  // On the agent's loop, once it has come there.
  template <class Act>
  void Tell(NodeVisit& visit, Act act) {
    Tell(visit, visit.loop(), std::move(act));
  }
  template <class Act>
  void Tell(NodeVisit& visit, Process& who, Act act) {
    const Place self = world_.network.front_end();
    const int64_t arrival = world_.network.Send(visit.down(), self, visit.node());
    world_.timeline.At(arrival, &visit.keeper(), [this, &who, act = std::move(act)]() mutable {
      world_.timeline.Do(who, std::move(act));
    });
  }
  std::optional<uint32_t> IndexOf(const NodeVisit& visit) const;  // none: it was reached anew
  Clock::time_point Now() const;
  Clock::duration SilenceOf(const NodeState& node, Clock::time_point now) const;
  milliseconds dead_after() const;

  World& world_;
  Process process_;
  JobStory story_;
  std::vector<NodeState> nodes_;
  pb::PrepareRequest prepare_;
  Rendezvous* endpoint_ = nullptr;
  std::optional<pb::RendezvousLost> rendezvous_lost_;
  bool moving_ = false;
  uint64_t begun_epoch_ = 0;
  uint64_t move_number_ = 0;
  size_t pending_ = 0;
  bool failed_to_start_ = false;
  bool running_ = false;
  bool connector_stopped_ = false;
  bool teardown_armed_ = false;
  uint64_t teardown_number_ = 0;
  int visits_again_ = 0;
  int moves_ = 0;
  Clock::time_point watch_expiry_;
  std::optional<int> exit_code_;
};

}  // namespace dslaunch::sim
