// The front end: the product's own SessionCore behind a model of its edge. What the core wants done
// happens on the virtual network and clock, and its results are passed to the core; nothing is
// decided here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/core/session_core.h"
#include "tests/sim/node_incarnation.h"
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
  int failovers() const { return failovers_; }
  bool has_detached() const { return has_detached_; }
  // The job continues, and its nodes may come back.
  bool takes_nodes() const { return !process_.gone && !core_.end().connecting_stopped(); }

  void Start();

  // Results from a node, on this process.
  void OnEvent(NodeIncarnation& incarnation, const pb::NodeEvent& event);
  void OnAlive(NodeIncarnation& incarnation);
  void OnStreamEnd(NodeIncarnation& incarnation);
  void OnLinkClosed(NodeIncarnation& incarnation, bool supervisor_ended);

  // Faults.
  void Crash();
  void LosePower();
  void Interrupt();

 private:
  // The newest connection to a node; as NodeClient and its link.
  struct Client {
    NodeIncarnation* incarnation = nullptr;
    bool is_preparing = false;
    bool runs = false;  // its stream was begun
    bool stream_ended = false;
    bool is_over = false;           // our end of it
    bool link_closed = false;       // from the other side
    bool supervisor_ended = false;  // the link ended because the supervisor ended
    bool end_is_awaited = false;
    uint64_t renewals = 0;
    uint64_t answered = 0;                      // the newest of them
    std::vector<std::function<void()>> unread;  // events that the agent keeps for its stream
  };

  static SessionOptions OptionsFor(const World& world);

  void Carry(SessionCore::Actions actions);
  void Do(const action::Log& say);
  void Do(const action::Record&) {}
  void Do(const action::ShowRanks&) {}
  void Do(const action::Connect& connect);
  void Do(const action::StopConnecting&) { connecting_stopped_ = true; }
  void Do(action::Prepare& prepare);
  void Do(action::Run& run);
  void Do(const action::Renew& renew);
  void Do(action::Failover& move);
  void Do(action::Stop& stop);
  void Do(const action::Signal&) {}
  void Do(const action::ShowStacks&) {}
  void Do(const action::Detach& detach);
  void Do(const action::DropOutput&) {}
  void Do(const action::Goodbye& goodbye) { EndOurSide(clients_[goodbye.node]); }
  void Do(const action::Abort& abort);
  void Do(const action::AwaitEnd& await);
  void Do(const action::SetTimer& set);
  void Do(const action::Finish&) { finished_ = true; }

  void OnConnected(uint32_t index, bool reached);
  // Reaches a node, and answers by OnConnected.
  void Reach(uint32_t index, bool again);
  void OnPrepared(NodeIncarnation& incarnation, Result<pb::PreparedNode> info);
  void OnFailoverAnswered(NodeIncarnation& incarnation, uint64_t number, uint32_t host,
                          const Result<pb::RendezvousOpened>& opened);
  void EndSilentLinks();
  void EndOurSide(Client& client, bool abort = false);
  void Finish();

  // Returns nullptr if the node was reached again since.
  Client* ClientOf(const NodeIncarnation& incarnation);
  // A rendezvous by its endpoint, and the other way round.
  Rendezvous* RendezvousAt(const std::string& endpoint) const;
  std::string EndpointOf(const Rendezvous& rendezvous) const;

  template <class MakeText>
  void Log(MakeText make_text) const {
    world_.Log("front end", make_text);
  }
  // Does `act` on `who` of the agent, once the message has arrived there.
  template <class Act>
  void Notify(NodeIncarnation& incarnation, Process& who, Act act) {
    const Place self = world_.network.front_end();
    const int64_t arrival = world_.network.Send(incarnation.down(), self, incarnation.node());
    world_.timeline.At(
        arrival, &incarnation.supervisor(),
        [this, &who, act = std::move(act)]() mutable { world_.timeline.Do(who, std::move(act)); });
  }
  // Does `act` on this process, once the answer has arrived.
  template <class Act>
  void Answer(NodeIncarnation& incarnation, Act act) {
    const int64_t arrival =
        world_.network.Send(incarnation.up(), incarnation.node(), world_.network.front_end());
    world_.timeline.At(arrival, &process_, std::move(act));
  }
  Clock::time_point Now() const;

  World& world_;
  Process process_;
  const SessionOptions options_;
  SessionCore core_;
  std::vector<Client> clients_;
  std::array<uint64_t, kSessionTimers> timer_numbers_{};
  bool connecting_stopped_ = false;
  bool has_detached_ = false;
  bool finished_ = false;
  uint64_t failovers_sent_ = 0;
  std::vector<bool> failovers_answered_;  // indexed by number of the failover
  int reconnects_ = 0;
  int failovers_ = 0;
  std::optional<int> exit_code_;
};

}  // namespace dslaunch::sim
