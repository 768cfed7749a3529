// Thousands of jobs with faults, in virtual time: agents as small state machines around the real
// Coordinator, over a network that delays, holds back, breaks off and repeats. Whatever happens, a
// rank starts once, the job ends, and 0 means success. DSLAUNCH_TEST_SEED repeats a history.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "proto/node_set.h"
#include "rendezvous/cause.h"
#include "rendezvous/coordinator.h"
#include "tests/support/random_seed.h"

namespace dslaunch {
namespace {

constexpr int kHistories = 5'000;
constexpr int64_t kTickMs = 500;
constexpr int64_t kHeartbeatMs = 1'000;
constexpr uint32_t kGraceMs = 2'000;
constexpr uint32_t kDeadMs = 6'000;
constexpr int kRejoins = 6;  // of all nodes together: joining costs no restart
// More than all epochs that policy and rejoins allow, each with all its deadlines.
constexpr int64_t kLongestJobMs = 20 * 60'000;

// One agent process on a node, and its connection.
struct Agent {
  uint32_t node = 0;
  SessionId session = 0;
  bool gone = false;      // the process
  bool stopping = false;  // its ladder runs, or has run
  bool over = false;  // for it: it was told so, or has given the rendezvous up, and says no more
  uint64_t epoch = 0;
  int64_t last_heard = 0;
};

// What is true on a node, whoever knows it.
struct Node {
  std::shared_ptr<Agent> agent;  // the newest
  uint64_t runs = 0;             // the epoch whose ranks run; 0: none
  uint64_t finished = 0;         // the newest epoch whose ranks all ended 0
  uint64_t empty = 0;            // the newest epoch of which its agent saw that nothing is left
  int64_t cut_off_until = 0;
  bool cut_one_way = false;  // only what it sends is held back
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  // Empty when all went as it must.
  std::string Run() {
    MakeJob();
    coordinator_ = std::make_unique<Coordinator>(options_, Now());
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
      const bool absent = std::ranges::count(options_.absent_nodes, node) > 0;
      const bool comes = !absent || random_.OneIn(2);
      if (comes) Connect(node, absent ? random_.Between(0, 60'000) : random_.Between(0, 2'000));
    }
    At(kTickMs, [this] { Tick(); });
    while (error_.empty() && coordinator_->phase() != Coordinator::Phase::kClosed) {
      if (events_.empty() || now_ > kLongestJobMs) {
        Fail("the job did not end; phase " +
             std::to_string(static_cast<int>(coordinator_->phase())) + ", epoch " +
             std::to_string(coordinator_->epoch()));
        break;
      }
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.act();
    }
    return error_;
  }

  uint64_t epochs() const { return coordinator_->epoch(); }
  bool succeeded() const { return succeeded_; }

 private:
  struct Event {
    int64_t at;
    uint64_t order;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  void MakeJob() {
    const auto regular = static_cast<uint32_t>(random_.Between(1, 5));
    const auto spares = static_cast<uint32_t>(random_.Between(0, 2));
    options_.job_id = "job";
    for (uint32_t index = 0; index < regular + spares; ++index) {
      pb::Node node;
      node.set_name("node" + std::to_string(index));
      node.set_slots(static_cast<uint32_t>(random_.Between(1, 3)));
      node.set_spare(index >= regular);
      options_.nodes.push_back(node);
      if (index > 0 && random_.OneIn(8)) options_.absent_nodes.push_back(index);
    }
    nodes_.resize(options_.nodes.size());
    pb::Timeouts& timeouts = options_.timeouts;
    timeouts.set_grace_ms(kGraceMs);
    timeouts.set_join_ms(20'000);
    timeouts.set_ready_ms(10'000);
    timeouts.set_teardown_ms(2'000);
    timeouts.set_heartbeat_ms(kHeartbeatMs);
    timeouts.set_suspect_ms(3'000);
    timeouts.set_dead_ms(kDeadMs);
    if (random_.OneIn(5)) return;  // the first failure ends the job
    pb::Policy& policy = options_.policy;
    policy.set_max_restarts(static_cast<uint32_t>(random_.Between(0, 4)));
    policy.set_backoff_ms(static_cast<uint32_t>(random_.Between(0, 2'000)));
    policy.set_max_backoff_ms(5'000);
    policy.set_min_nodes(static_cast<uint32_t>(random_.Between(0, regular)));
    policy.set_max_nodes(regular);
    policy.set_node_failures(static_cast<uint32_t>(random_.Between(0, 2)));
    policy.set_cooldown_ms(60'000);
    policy.set_on_join(random_.OneIn(2) ? pb::Policy::AT_ONCE : pb::Policy::AT_RESTART);
    policy.set_hang_ms(random_.OneIn(2) ? 30'000 : 0);
    policy.set_on_hang(random_.OneIn(2) ? pb::Policy::KILL : pb::Policy::RESTART);
    reports_steps_ = random_.OneIn(2);
    trouble_ = random_.Between(1, 10);
  }

  // --- The network ---

  void Connect(uint32_t node, int64_t delay) {
    After(delay, [this, node] {
      auto agent = std::make_shared<Agent>();
      agent->node = node;
      agent->session = ++last_session_;
      agent->last_heard = now_;
      nodes_[node].agent = agent;
      agents_[agent->session] = agent;
      pb::AgentMessage message;
      pb::Join& join = *message.mutable_join();
      join.set_slots(options_.nodes[node].slots());
      join.set_identity("machine" + std::to_string(node));
      join.set_master_port(static_cast<uint32_t>(random_.Between(1'024, 60'000)));
      if (node > 0) {
        join.set_reached_at("10.0.0.1");
        join.set_address("10.0.0." + std::to_string(node + 1));
      }
      Say(agent, message);
      After(kHeartbeatMs, [this, agent] { Heartbeat(agent); });
      if (node > 0 && random_.OneIn(trouble_)) MakeTrouble(agent);
    });
  }

  // In order, unless it breaks off. The rendezvous' own agent is in its process.
  int64_t Arrival(uint32_t node, int64_t& last, bool outward) {
    int64_t arrival = now_ + (node == 0 ? 0 : random_.Between(1, 50));
    const Node& from = nodes_[node];
    if (arrival < from.cut_off_until && (outward || !from.cut_one_way))
      arrival = from.cut_off_until;
    return last = std::max(last, arrival);
  }

  void Say(const std::shared_ptr<Agent>& agent, pb::AgentMessage message) {
    if (agent->gone || agent->over) return;
    message.set_job_id("job");
    message.set_node_index(agent->node);
    message.set_epoch(agent->epoch);
    const SessionId session = agent->session;
    said_.push_back({session, message});
    At(Arrival(agent->node, last_arrival_[{session, true}], true),
       [this, session, message] { Hear(session, message); });
  }

  void Hear(SessionId session, const pb::AgentMessage& message) {
    if (broken_.contains(session)) return;
    if (now_ < stands_still_until_) {
      return At(stands_still_until_, [this, session, message] { Hear(session, message); });
    }
    Deliver(coordinator_->OnMessage(session, message, Now()));
    // Something old is heard once more.
    if (!random_.OneIn(20)) return;
    const auto& [again, old] =
        said_[static_cast<size_t>(random_.Between(0, static_cast<int64_t>(said_.size()) - 1))];
    if (old.epoch() < coordinator_->epoch() && agents_.contains(again) &&
        !broken_.contains(again) && joined_.contains(again))
      Deliver(coordinator_->OnMessage(again, old, Now()));
  }

  void Deliver(const std::vector<Outgoing>& messages) {
    if (coordinator_->epoch() > known_epoch_) CheckNewEpoch(messages);
    for (const Outgoing& one : messages) {
      CheckReason(one.message);
      if (one.message.has_halt()) halted_epochs_.insert(one.message.epoch());
      if (one.message.has_closed()) CheckEnd(one.message.closed());
      if (broken_.contains(one.session)) continue;
      joined_.insert(one.session);
      const std::shared_ptr<Agent> agent = agents_.at(one.session);
      const pb::RendezvousMessage message = one.message;
      const int64_t arrival = Arrival(agent->node, last_arrival_[{one.session, false}], false);
      At(arrival, [this, agent, message] {
        if (!agent->gone && !broken_.contains(agent->session)) OnMessage(agent, message);
      });
      if (one.end_session) At(arrival, [this, agent] { Break(agent); });
    }
  }

  // The connection ends; both ends hear of it, each in its time.
  void Break(const std::shared_ptr<Agent>& agent) {
    if (!broken_.insert(agent->session).second) return;
    const SessionId session = agent->session;
    After(random_.Between(0, 200), [this, session] { Disconnected(session); });
    After(random_.Between(0, 200), [this, agent] { LoseRendezvous(agent); });
  }

  void Disconnected(SessionId session) {
    if (now_ < stands_still_until_)
      return At(stands_still_until_, [this, session] { Disconnected(session); });
    Deliver(coordinator_->OnDisconnect(session, Now()));
  }

  void Tick() {
    if (now_ < stands_still_until_) return At(stands_still_until_, [this] { Tick(); });
    Deliver(coordinator_->OnTick(Now()));
    if (random_.OneIn(400)) stands_still_until_ = now_ + random_.Between(1'000, 20'000);
    After(kTickMs, [this] { Tick(); });
  }

  // --- Agents ---

  void Heartbeat(const std::shared_ptr<Agent>& agent) {
    if (agent->gone) return;
    if (now_ - agent->last_heard >= kDeadMs && agent->node > 0) LoseRendezvous(agent);
    pb::AgentMessage message;
    message.mutable_heartbeat()->set_sent_us(static_cast<uint64_t>(now_) * 1'000);
    if (reports_steps_ && nodes_[agent->node].runs != 0) {
      pb::RankProgress& rank = *message.mutable_heartbeat()->add_ranks();
      rank.set_rank(first_rank_[agent->node]);
      rank.set_step(static_cast<uint64_t>(now_ - epoch_began_) / 1'000 + 1);
      rank.set_median_step_us(static_cast<uint64_t>(random_.Between(900'000, 2'000'000)));
      rank.set_ended(nodes_[agent->node].finished == agent->epoch);
      if (stuck_.contains(agent->epoch)) {
        rank.set_step(1);
        rank.set_since_us(static_cast<uint64_t>(now_ - epoch_began_) * 1'000);
      }
    }
    Say(agent, message);
    After(kHeartbeatMs, [this, agent] { Heartbeat(agent); });
  }

  void OnMessage(const std::shared_ptr<Agent>& agent, const pb::RendezvousMessage& message) {
    agent->last_heard = now_;
    if (message.has_assignment()) return StartRanks(agent, message);
    if (message.has_halt()) return HaltRanks(agent);
    if (message.has_stop()) return TearDown(agent, /*then_goes=*/false);
    agent->over = agent->over || message.has_refused() || message.has_closed();
    if (message.has_refused()) TearDown(agent, /*then_goes=*/true);
  }

  void StartRanks(const std::shared_ptr<Agent>& agent, const pb::RendezvousMessage& message) {
    Node& node = nodes_[agent->node];
    if (agent->stopping) return;
    if (node.runs != 0) {
      return Fail("node" + std::to_string(agent->node) + " runs ranks of epoch " +
                  std::to_string(node.runs) + " and gets some of " +
                  std::to_string(message.epoch()));
    }
    if (message.epoch() <= agent->epoch) return Fail("an older epoch began");
    agent->epoch = node.runs = message.epoch();
    first_rank_[agent->node] = message.assignment().first_rank();
    epoch_began_ = now_;
    for (uint32_t slot = 0; slot < options_.nodes[agent->node].slots(); ++slot) {
      const uint32_t rank = message.assignment().first_rank() + slot;
      if (!started_.insert({message.epoch(), rank}).second)
        Fail("rank " + std::to_string(rank) + " was started twice");
      if (rank >= message.assignment().world_size()) Fail("a rank beyond the world");
    }
    const uint64_t epoch = agent->epoch;
    if (reports_steps_ && options_.policy.hang_ms() > 0 && random_.OneIn(20)) stuck_.insert(epoch);
    // Some never become ready: the barrier's deadline.
    if (!random_.OneIn(60)) {
      WhileRunning(agent, epoch, random_.Between(1, 2'000), [this, agent] {
        pb::AgentMessage ready;
        ready.mutable_ready();
        Say(agent, ready);
      });
    }
    if (random_.OneIn(trouble_)) {
      WhileRunning(agent, epoch, random_.Between(1, 20'000), [this, agent] { FailRank(agent); });
    }
    if (stuck_.contains(epoch)) return;
    WhileRunning(agent, epoch, random_.Between(2'000, 30'000), [this, agent, epoch] {
      Node& own = nodes_[agent->node];
      own.finished = epoch;
      pb::AgentMessage finished;
      finished.mutable_finished();
      Say(agent, finished);
    });
  }

  void FailRank(const std::shared_ptr<Agent>& agent) {
    Node& node = nodes_[agent->node];
    if (node.finished == agent->epoch) return;
    failed_.insert({agent->epoch, agent->node});
    pb::AgentMessage message;
    pb::WorkerFailed& failed = *message.mutable_worker_failed();
    *failed.mutable_cause() =
        MakeCause(pb::Cause::WORKER_EXIT, agent->node, ExitCode::kInternal, "");
    failed.mutable_cause()->set_rank(static_cast<int>(first_rank_[agent->node]));
    failed.mutable_cause()->set_victim(random_.OneIn(4));
    failed.set_age_us(static_cast<uint64_t>(random_.Between(0, 100'000)));
    failed.set_rtt_us(static_cast<uint64_t>(random_.Between(0, 100'000)));
    Say(agent, message);
  }

  void HaltRanks(const std::shared_ptr<Agent>& agent) {
    if (agent->stopping || random_.OneIn(200)) return;  // some never answer
    After(random_.Between(0, kGraceMs), [this, agent] {
      if (agent->gone || agent->stopping) return;
      nodes_[agent->node].runs = 0;
      uint64_t& empty = nodes_[agent->node].empty;
      empty = std::max(empty, agent->epoch);  // a newer agent may know of none
      pb::AgentMessage message;
      message.mutable_halted()->set_master_port(30'000);
      if (random_.OneIn(100)) message.mutable_halted()->add_left()->set_pid(1);
      Say(agent, message);
    });
  }

  void TearDown(const std::shared_ptr<Agent>& agent, bool then_goes) {
    if (then_goes) agents_that_go_.insert(agent->session);
    if (agent->gone || std::exchange(agent->stopping, true)) return;
    if (random_.OneIn(300)) return;  // it never becomes empty
    After(random_.Between(0, kGraceMs), [this, agent] {
      if (agent->gone) return;
      nodes_[agent->node].runs = 0;
      uint64_t& empty = nodes_[agent->node].empty;
      empty = std::max(empty, agent->epoch);  // a newer agent may know of none
      pb::AgentMessage message;
      message.mutable_torn_down();
      Say(agent, message);
      if (agents_that_go_.contains(agent->session)) Go(agent);
    });
  }

  // The agent's own view of a connection that broke off or is silent.
  void LoseRendezvous(const std::shared_ptr<Agent>& agent) {
    if (agent->gone || std::exchange(agent->over, true)) return;
    TearDown(agent, /*then_goes=*/true);
    if (nodes_[agent->node].runs == 0) Go(agent);
  }

  // The process ends; the front end may connect the node anew.
  void Go(const std::shared_ptr<Agent>& agent) {
    if (std::exchange(agent->gone, true)) return;
    Break(agent);
    if (agent->node == 0 || rejoins_ == kRejoins || random_.OneIn(2)) return;
    ++rejoins_;
    Connect(agent->node, random_.Between(100, 20'000));
  }

  void MakeTrouble(const std::shared_ptr<Agent>& agent) {
    After(random_.Between(0, 40'000), [this, agent] {
      if (agent->gone) return;
      Node& node = nodes_[agent->node];
      switch (random_.Between(0, 4)) {
        case 0:  // a power cut: nobody says anything, and silence tells
          node.runs = 0;
          node.cut_off_until = now_ + kLongestJobMs;
          agent->gone = true;
          break;
        case 1:  // the agent is killed: its node empties itself
          node.runs = 0;
          Go(agent);
          break;
        case 2:  // the connection breaks off
          Break(agent);
          break;
        case 3:  // a cable is pulled for a while
          node.cut_off_until = now_ + random_.Between(500, 15'000);
          node.cut_one_way = random_.OneIn(2);
          break;
        default: {  // the keeper is killed, or the user has had enough
          pb::AgentMessage message;
          const bool user = random_.OneIn(3);
          *message.mutable_stop()->mutable_cause() =
              MakeCause(user ? pb::Cause::INTERRUPTED : pb::Cause::NODE_LOST, agent->node,
                        user ? ExitCode::kInterrupted : ExitCode::kUnavailable, "keeper or user");
          Say(agent, message);
          TearDown(agent, /*then_goes=*/!user);
        }
      }
    });
  }

  // --- What must hold ---

  void CheckNewEpoch(const std::vector<Outgoing>& messages) {
    if (known_epoch_ > 0 && !halted_epochs_.contains(known_epoch_))
      Fail("epoch " + std::to_string(known_epoch_) + " was never halted");
    known_epoch_ = coordinator_->epoch();
    uint32_t next_rank = 0;
    int64_t last_node = -1;
    for (const Outgoing& one : messages) {
      if (!one.message.has_assignment() || one.message.epoch() != known_epoch_) continue;
      const uint32_t node = agents_.at(one.session)->node;
      if (one.message.assignment().first_rank() != next_rank || node <= last_node)
        Fail("ranks do not follow hostfile order");
      last_node = node;
      next_rank += options_.nodes[node].slots();
      if (one.message.assignment().master_addr().empty()) Fail("no MASTER_ADDR");
      if (agents_.at(one.session) == nodes_[node].agent && nodes_[node].runs != 0)
        Fail("node" + std::to_string(node) + " was not empty when it got ranks");
    }
    if (next_rank == 0) Fail("an epoch without ranks");
  }

  void CheckReason(const pb::RendezvousMessage& message) {
    const pb::Cause& cause = message.has_stop()      ? message.stop().cause()
                             : message.has_halt()    ? message.halt().cause()
                             : message.has_refused() ? message.refused().cause()
                                                     : message.closed().cause();
    if (cause.kind() != pb::Cause::NONE && cause.rank() < 0 && cause.message().empty())
      Fail("a cause without a sentence: " + cause.ShortDebugString());
    if (message.has_halt() && message.halt().reason().empty()) Fail("a restart without a reason");
  }

  void CheckEnd(const pb::Closed& closed) {
    if (closed.cause().kind() != pb::Cause::NONE || !closed.complete()) return;
    succeeded_ = true;
    if (closed.members().bounds_size() == 0) Fail("success of nobody");
    for (const uint32_t node : IndexesOf(closed.members())) {
      const std::string name = "node" + std::to_string(node);
      if (nodes_[node].finished != known_epoch_) Fail("success, but " + name + " has not finished");
      if (nodes_[node].empty != known_epoch_) Fail("success, but " + name + " is not empty");
      if (failed_.contains({known_epoch_, node}))
        Fail("success, but a rank of " + name + " failed");
    }
  }

  void Fail(const std::string& what) {
    if (error_.empty()) error_ = "at " + std::to_string(now_) + " ms: " + what;
  }

  // --- Time ---

  Clock::time_point Now() const { return Clock::time_point(milliseconds(now_)); }
  void At(int64_t when, std::function<void()> act) {
    events_.push({when, ++order_, std::move(act)});
  }
  void After(int64_t delay, std::function<void()> act) { At(now_ + delay, std::move(act)); }
  // If by then the ranks of this epoch still run and nobody has stopped them.
  void WhileRunning(const std::shared_ptr<Agent>& agent, uint64_t epoch, int64_t delay,
                    std::function<void()> act) {
    After(delay, [this, agent, epoch, act = std::move(act)] {
      const bool runs = nodes_[agent->node].runs == epoch && agent->epoch == epoch;
      if (runs && !agent->gone && !agent->stopping && !failed_.contains({epoch, agent->node}))
        act();
    });
  }

  Random random_;
  CoordinatorOptions options_;
  bool reports_steps_ = false;
  int64_t trouble_ = 4;  // one in so many nodes and epochs has some
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Node> nodes_;
  std::map<SessionId, std::shared_ptr<Agent>> agents_;
  std::set<SessionId> agents_that_go_;  // as soon as they are empty
  std::set<SessionId> joined_;
  std::set<SessionId> broken_;
  std::map<std::pair<SessionId, bool>, int64_t> last_arrival_;  // of what the agent sends, or gets
  std::vector<std::pair<SessionId, pb::AgentMessage>> said_;
  SessionId last_session_ = 0;
  int rejoins_ = 0;
  std::map<uint32_t, uint32_t> first_rank_;          // of each node
  std::set<std::pair<uint64_t, uint32_t>> started_;  // epoch, rank
  std::set<std::pair<uint64_t, uint32_t>> failed_;   // epoch, node
  std::set<uint64_t> halted_epochs_;
  std::set<uint64_t> stuck_;  // epochs
  int64_t epoch_began_ = 0;
  uint64_t known_epoch_ = 0;
  int64_t stands_still_until_ = 0;  // the rendezvous' machine
  bool succeeded_ = false;
  std::string error_;
  int64_t now_ = 0;  // ms
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
};

TEST(SimulationTest, WhateverFailsAJobEndsAndDoesNotLie) {
  const uint64_t first_seed = TestSeed();
  int succeeded = 0;
  int restarted = 0;
  for (uint64_t seed = first_seed; seed < first_seed + kHistories; ++seed) {
    Simulation simulation(seed);
    ASSERT_EQ(simulation.Run(), "") << "DSLAUNCH_TEST_SEED=" << seed << " repeats it";
    succeeded += simulation.succeeded();
    restarted += simulation.epochs() > 1;
  }
  // Else the histories show nothing.
  EXPECT_GT(succeeded, kHistories / 10) << "DSLAUNCH_TEST_SEED=" << first_seed;
  EXPECT_LT(succeeded, kHistories * 9 / 10) << "DSLAUNCH_TEST_SEED=" << first_seed;
  EXPECT_GT(restarted, kHistories / 4) << "DSLAUNCH_TEST_SEED=" << first_seed;
}

}  // namespace
}  // namespace dslaunch
