// Simulates the front end: the product's own SessionCore behind a model of its input and output.
// Actions of the core happen on the virtual network and clock, and their results are passed to the
// core. This model decides nothing itself.
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
  // Returns the exit code of the front end; nullopt if it still runs or was killed.
  std::optional<int> exit_code() const { return exit_code_; }
  int failovers() const { return failovers_; }
  bool has_detached() const { return has_detached_; }
  // Returns whether the job continues and its nodes may reconnect.
  bool takes_nodes() const { return !process_.gone && !core_.end().connecting_stopped(); }

  void Start();

  // The functions below handle what a node sends. Called on this process.
  void OnEvent(NodeIncarnation& incarnation, const pb::NodeEvent& event);
  void OnAlive(NodeIncarnation& incarnation);
  void OnStreamEnd(NodeIncarnation& incarnation);
  void OnLinkClosed(NodeIncarnation& incarnation, bool supervisor_ended);

  // The functions below inject faults of the front end's process and machine.
  void Crash();
  void LosePower();
  void Interrupt();

 private:
  // The newest connection to a node, in place of NodeClient and its link.
  struct Client {
    NodeIncarnation* incarnation = nullptr;
    bool is_preparing = false;
    bool runs = false;  // whether the stream of events was begun
    bool stream_ended = false;
    bool is_over = false;           // whether the front end has ended its side
    bool link_closed = false;       // whether the node's side has ended
    bool supervisor_ended = false;  // whether the link ended because the supervisor ended
    bool end_is_awaited = false;
    uint64_t renewals = 0;
    uint64_t answered = 0;                      // number of the newest answered renewal
    std::vector<std::function<void()>> unread;  // events kept until its stream begins
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
  // Connects to a node and reports the result to OnConnected.
  void Reach(uint32_t index, bool again);
  void OnPrepared(NodeIncarnation& incarnation, Result<pb::PreparedNode> info);
  void OnFailoverAnswered(NodeIncarnation& incarnation, uint64_t number, uint32_t host,
                          const Result<pb::RendezvousOpened>& opened);
  void EndSilentLinks();
  void EndOurSide(Client& client, bool abort = false);
  void Finish();

  // Returns the client of `incarnation`; nullptr if the front end has connected to the node again
  // since.
  Client* ClientOf(const NodeIncarnation& incarnation);
  // Returns the rendezvous that `endpoint` names. Precondition: EndpointOf() returned `endpoint`.
  Rendezvous* RendezvousAt(const std::string& endpoint) const;
  // Returns the endpoint that names `rendezvous`.
  std::string EndpointOf(const Rendezvous& rendezvous) const;

  template <class MakeText>
  void Log(MakeText make_text) const {
    world_.Log("front end", make_text);
  }
  // Runs `act` on process `who` of the agent once a message from the front end has arrived at the
  // node.
  template <class Act>
  void Notify(NodeIncarnation& incarnation, Process& who, Act act) {
    const Place self = world_.network.front_end();
    const int64_t arrival = world_.network.Send(incarnation.down(), self, incarnation.node());
    world_.timeline.At(
        arrival, &incarnation.supervisor(),
        [this, &who, act = std::move(act)]() mutable { world_.timeline.Do(who, std::move(act)); });
  }
  // Runs `act` on the front end's process once an answer from the node has arrived.
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
