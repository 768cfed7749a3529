// Tests the decisions of a session, without a loop, a network or a clock.
#include "cli/core/session_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/core/call_times.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_list.h"
#include "proto/wire/node_set.h"

namespace dslaunch::session_core_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

pb::NodeEvent Started(uint64_t attempt, const std::vector<uint32_t>& members) {
  pb::NodeEvent event;
  event.mutable_started()->set_attempt(attempt);
  event.mutable_started()->set_world_size(static_cast<uint32_t>(members.size()));
  event.mutable_started()->set_restart_count(static_cast<uint32_t>(attempt - 1));
  *event.mutable_started()->mutable_members() = ToNodeSet(members);
  return event;
}

pb::NodeEvent Outcome(const pb::Cause& cause = {}) {
  pb::NodeEvent event;
  event.mutable_outcome()->set_attempt(1);
  *event.mutable_outcome()->mutable_cause() = cause;
  return event;
}

pb::NodeEvent Done(const std::vector<uint32_t>& members) {
  pb::NodeEvent event;
  event.mutable_done()->set_completed(true);
  event.mutable_done()->set_teardown_complete(true);
  *event.mutable_done()->mutable_members() = ToNodeSet(members);
  return event;
}

pb::NodeEvent RendezvousLost(uint64_t attempt, uint32_t host) {
  pb::NodeEvent event;
  event.mutable_rendezvous_lost()->set_attempt(attempt);
  *event.mutable_rendezvous_lost()->mutable_cause() = MakeCause(
      pb::Cause::NODE_LOST, host, ExitCode::kUnavailable, "the connection to its rendezvous broke");
  return event;
}

Error Unreachable(ExitCode code = ExitCode::kUnavailable) { return {code, "no way there"}; }

class SessionCoreTest : public testing::Test {
 protected:
  void PlanFor(size_t nodes, int min_nodes, uint32_t max_restarts) {
    LaunchPlan& plan = options_.plan;
    for (size_t i = 0; i < nodes; ++i) {
      Host& node = plan.nodes.emplace_back();
      node.name = "node" + std::to_string(i);
      node.slots = 1;
    }
    plan.launcher = Launcher::kSsh;
    plan.min_nodes = min_nodes;
    plan.max_nodes = static_cast<int>(nodes);
    plan.ranks = NumberRanksOf(plan.nodes);
    options_.job.mutable_policy()->set_max_restarts(max_restarts);
    options_.job.set_job_id("job1");
    options_.job.mutable_timeouts()->set_grace_ms(1'000);
    options_.job.mutable_timeouts()->set_teardown_ms(2'000);
    options_.job.mutable_timeouts()->set_dead_ms(6'000);
    options_.job.mutable_timeouts()->set_lease_ms(15'000);
  }

  SessionCore& core() {
    if (!core_) core_.emplace(options_, now_, bug_);
    return *core_;
  }

  // Replaces the kept actions by the actions that the core requests now.
  void Take(SessionCore::Actions actions) { actions_ = std::move(actions); }
  template <class Action>
  std::vector<Action> All() const {
    std::vector<Action> found;
    for (const SessionAction& action : actions_) {
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <class Action>
  std::vector<size_t> NodesOf() const {
    std::vector<size_t> nodes;
    for (const Action& action : All<Action>()) nodes.push_back(action.node);
    return nodes;
  }
  std::string Logged() const {
    std::string logged;
    for (const action::Log& line : All<action::Log>()) logged += line.text + "\n";
    return logged;
  }
  bool IsFinished() const { return !All<action::Finish>().empty(); }
  // Returns the time from now until the timer expires; nullopt if the last actions did not set it.
  std::optional<milliseconds> Timer(SessionTimer timer) const {
    std::optional<milliseconds> delay;
    for (const action::SetTimer& set : All<action::SetTimer>()) {
      if (set.timer == timer) delay = std::chrono::duration_cast<milliseconds>(set.when - now_);
    }
    return delay;
  }

  // Each of these functions keeps only the actions of its last call to the core.
  void Connect(size_t index) { Take(core().OnConnected(index, NodeAddresses(), now_)); }
  void FailToConnect(size_t index, const Error& error) {
    Take(core().OnConnected(index, error, now_));
  }
  void Prepare(size_t index) {
    pb::PreparedNode info;
    info.set_job_dir("/jobs/" + std::to_string(index));
    info.add_rendezvous_endpoints("10.0.0.1:1");
    Take(core().OnPrepared(index, info, now_));
  }
  void Receive(size_t index, const pb::NodeEvent& event) {
    core().contact().OnListening(index, now_);
    Take(core().OnEvent(index, event, now_));
    core().contact().OnListening(index, now_);
  }
  // Reports that the node's rank of attempt 1 was started and has succeeded.
  void ReceiveSuccess(size_t index, const std::vector<uint32_t>& members) {
    pb::NodeEvent started = Started(1, members);
    started.mutable_started()->set_first_rank(static_cast<uint32_t>(index));
    started.mutable_started()->add_pids(4'711);
    Receive(index, started);
    pb::NodeEvent ended;
    ended.mutable_worker_ended()->set_attempt(1);
    ended.mutable_worker_ended()->set_rank(static_cast<uint32_t>(index));
    Receive(index, ended);
  }
  // Ends the stream of a node and then its link.
  void Lose(size_t index, bool supervisor_ended) {
    Take(core().OnStreamEnd(index, now_));
    Take(core().OnLinkEnded(index, supervisor_ended, "", now_));
  }
  void Watch() { Take(core().OnTimer(SessionTimer::kWatch, std::nullopt, now_)); }
  // Advances the clock by `duration`, during which the nodes in `heard` send heartbeats.
  void WatchFor(milliseconds duration, const std::vector<size_t>& heard) {
    const Clock::time_point end = now_ + duration;
    while (now_ < end && !IsFinished()) {
      now_ += milliseconds(500);
      for (const size_t index : heard) core().contact().OnListening(index, now_);
      Watch();
    }
  }

  void RunAll() {
    const size_t nodes = options_.plan.nodes.size();
    Take(core().Start(now_));
    for (size_t i = 0; i < nodes; ++i) Connect(i);
    for (size_t i = 0; i < nodes; ++i) Prepare(i);
    for (size_t i = 0; i < nodes; ++i) core().contact().OnListening(i, now_);
  }
  std::vector<uint32_t> Everyone() const {
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < options_.plan.nodes.size(); ++i) all.push_back(i);
    return all;
  }
  void StartAll() {
    RunAll();
    for (const uint32_t i : Everyone()) Receive(i, Started(1, Everyone()));
  }

  SessionOptions options_;
  SessionCore::PlantedBug bug_ = SessionCore::PlantedBug::kNone;
  Clock::time_point now_{std::chrono::hours(1)};
  std::optional<SessionCore> core_;
  SessionCore::Actions actions_;
};

// --- The start ---

TEST_F(SessionCoreTest, BeginsEachStepAfterAllNodesAnswered) {
  PlanFor(2, 2, 0);
  Take(core().Start(now_));
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(0, 1));
  EXPECT_EQ(Timer(SessionTimer::kRenew), kRenewEvery);
  Connect(1);
  EXPECT_THAT(NodesOf<action::Prepare>(), IsEmpty());
  Connect(0);
  ASSERT_THAT(NodesOf<action::Prepare>(), ElementsAre(0, 1));
  EXPECT_EQ(All<action::Prepare>()[1].request.node_index(), 1u);
  EXPECT_EQ(All<action::Prepare>()[1].request.rendezvous_node(), 0u);
  Prepare(0);
  EXPECT_THAT(NodesOf<action::Run>(), IsEmpty());
  Prepare(1);
  EXPECT_THAT(NodesOf<action::Run>(), ElementsAre(0, 1));
  EXPECT_THAT(All<action::Run>()[1].request.rendezvous_endpoints(), ElementsAre("10.0.0.1:1"));
  EXPECT_EQ(Timer(SessionTimer::kWatch), milliseconds(500));
}

TEST_F(SessionCoreTest, DoesNotChooseSpareAsHost) {
  PlanFor(2, 1, 0);
  options_.plan.nodes[0].spare = true;
  Take(core().Start(now_));
  Connect(0);
  Connect(1);
  EXPECT_EQ(All<action::Prepare>()[0].request.rendezvous_node(), 1u);
}

TEST_F(SessionCoreTest, StartsWithoutUnreachableNodeAndRetriesIt) {
  PlanFor(2, 1, 3);
  Take(core().Start(now_));
  FailToConnect(0, Unreachable());
  Connect(1);
  EXPECT_THAT(Logged(), HasSubstr("no way there; starting without node0"));
  ASSERT_THAT(NodesOf<action::Prepare>(), ElementsAre(1));
  EXPECT_THAT(All<action::Prepare>()[0].request.absent_nodes(), ElementsAre(0));
  Prepare(1);
  EXPECT_THAT(NodesOf<action::Run>(), ElementsAre(1));
  ASSERT_THAT(NodesOf<action::Connect>(), ElementsAre(0));
  EXPECT_EQ(All<action::Connect>()[0].attempt, 1);
  FailToConnect(0, Unreachable());
  ASSERT_THAT(NodesOf<action::Connect>(), ElementsAre(0));
  EXPECT_EQ(All<action::Connect>()[0].attempt, 2);
  Connect(0);
  EXPECT_THAT(NodesOf<action::Prepare>(), ElementsAre(0));
  Prepare(0);
  EXPECT_THAT(NodesOf<action::Run>(), ElementsAre(0));
  EXPECT_THAT(Logged(), HasSubstr("node0 is connected now"));
}

TEST_F(SessionCoreTest, FailsStartWithFewerNodesThanStartNodes) {
  PlanFor(3, 1, 3);
  options_.plan.start_nodes = 2;
  Take(core().Start(now_));
  FailToConnect(0, Unreachable());
  FailToConnect(1, Unreachable());
  Connect(2);
  EXPECT_TRUE(All<action::Prepare>().empty());
  EXPECT_TRUE(IsFinished());
  EXPECT_EQ(core().End().job.exit_code, ToInt(ExitCode::kUnavailable));
}

TEST_F(SessionCoreTest, RefusalFailsStartAndNamesOtherFailures) {
  PlanFor(4, 1, 3);
  Take(core().Start(now_));
  FailToConnect(0, Unreachable(ExitCode::kNoPermission));
  EXPECT_EQ(Timer(SessionTimer::kConnect), milliseconds(2'000));
  FailToConnect(2, Unreachable(ExitCode::kNoPermission));
  EXPECT_EQ(Timer(SessionTimer::kConnect), std::nullopt);  // set only once
  Connect(3);
  Take(core().OnTimer(SessionTimer::kConnect, std::nullopt, now_));
  EXPECT_TRUE(IsFinished());
  const SessionEnd end = core().End();
  EXPECT_EQ(end.kind, SessionEnd::Kind::kNotStarted);
  EXPECT_EQ(end.job.exit_code, ToInt(ExitCode::kNoPermission));
  EXPECT_THAT(end.lines, ElementsAre("node0, node2 (2 nodes): no way there",
                                     "no answer so far from: node1 "
                                     "(1 node)",
                                     "nothing was started (2 of 4 nodes failed)"));
}

TEST_F(SessionCoreTest, FailsStartIfNodeCannotBePrepared) {
  PlanFor(2, 2, 0);
  Take(core().Start(now_));
  Connect(0);
  Connect(1);
  Take(core().OnPrepared(1, Error{ExitCode::kIo, "node1: its disk is full"}, now_));
  EXPECT_FALSE(IsFinished());
  Prepare(0);
  EXPECT_TRUE(IsFinished());
  EXPECT_THAT(NodesOf<action::Run>(), IsEmpty());
  EXPECT_EQ(core().End().job.exit_code, ToInt(ExitCode::kIo));
}

TEST_F(SessionCoreTest, LossBeforeFirstRanksStopsFixedJob) {
  PlanFor(3, 3, 0);
  RunAll();
  Take(core().OnStreamEnd(1, now_));
  EXPECT_THAT(NodesOf<action::Stop>(), ElementsAre(0, 2));
  EXPECT_THAT(All<action::Stop>()[0].cause.message(), HasSubstr("node1 was lost"));
  EXPECT_THAT(NodesOf<action::Goodbye>(), ElementsAre(1));
  EXPECT_THAT(NodesOf<action::AwaitEnd>(), ElementsAre(1));
  EXPECT_NE(Timer(SessionTimer::kTeardown), std::nullopt);
}

// --- The end ---

TEST_F(SessionCoreTest, EndsOnceAllNodesAreDone) {
  PlanFor(2, 2, 0);
  StartAll();
  for (const size_t index : {0, 1}) {
    ReceiveSuccess(index, {0, 1});
    Receive(index, Outcome());
    Receive(index, Done({0, 1}));
    EXPECT_FALSE(IsFinished());
    Take(core().OnStreamEnd(index, now_));
  }
  EXPECT_TRUE(IsFinished());
  EXPECT_EQ(core().End().kind, SessionEnd::Kind::kEnded);
  EXPECT_EQ(core().End().job.exit_code, 0);
  EXPECT_THAT(core().OnStreamEnd(0, now_), IsEmpty());  // no actions follow
}

// The agent exits after the connection has ended, so that a node's own command can start the next
// agent.
TEST_F(SessionCoreTest, EndsConnectionOfDoneNodeBeforeReachingItAgain) {
  PlanFor(2, 1, 3);
  StartAll();
  pb::NodeEvent done;
  done.mutable_done();
  Receive(1, done);
  Take(core().OnStreamEnd(1, now_));
  EXPECT_THAT(NodesOf<action::Goodbye>(), ElementsAre(1));
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(1));
}

TEST_F(SessionCoreTest, StopsJobAndNamesNodeThatBreaksTheRules) {
  PlanFor(3, 1, 3);
  StartAll();
  Take(core().OnBrokenRules(1, "exit code = 256, which is not from 0 to 255", now_));
  EXPECT_THAT(NodesOf<action::Stop>(), ElementsAre(0, 2));
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(1));
  EXPECT_EQ(All<action::StopConnecting>().size(), 1u);
  ASSERT_NE(Timer(SessionTimer::kTeardown), std::nullopt);
  Lose(1, /*supervisor_ended=*/true);
  EXPECT_THAT(NodesOf<action::Connect>(), IsEmpty());
  for (const size_t index : {0, 2}) {
    Receive(index, Outcome());
    Receive(index, Done({0, 1, 2}));
    Take(core().OnStreamEnd(index, now_));
  }
  EXPECT_TRUE(IsFinished());
  EXPECT_EQ(core().End().job.exit_code, 69);
  EXPECT_EQ(core().End().job.cause.message(),
            "node1 was lost: its agent sent exit code = 256, which is not from 0 to 255");
}

// The loss of a node is reported late, after the node has reconnected.
TEST_F(SessionCoreTest, KeepsReconnectedNodeWhenEarlierLossIsReported) {
  PlanFor(2, 2, 3);
  StartAll();
  Lose(1, /*supervisor_ended=*/true);
  Connect(1);
  Prepare(1);
  ASSERT_THAT(NodesOf<action::Run>(), ElementsAre(1));
  pb::NodeEvent restarting;
  restarting.mutable_restarting()->set_attempt(1);
  *restarting.mutable_restarting()->mutable_cause() =
      MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "node1 was lost: x");
  Receive(0, restarting);
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
}

TEST_F(SessionCoreTest, KeepsMemberOfLaterAttemptAfterOlderLoss) {
  PlanFor(2, 2, 3);
  StartAll();
  Lose(1, /*supervisor_ended=*/true);
  Connect(1);
  Prepare(1);
  Receive(1, Started(2, {0, 1}));
  pb::NodeEvent restarting;
  restarting.mutable_restarting()->set_attempt(1);
  *restarting.mutable_restarting()->mutable_cause() =
      MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "node1 was lost: x");
  Receive(0, restarting);
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  EXPECT_THAT(Logged(), HasSubstr("attempt 1 ended: node1 was lost: x"));
}

TEST_F(SessionCoreTest, AbortsNodesThatDoNotEndInTime) {
  PlanFor(2, 2, 0);
  StartAll();
  Receive(0, Outcome());
  const std::optional<milliseconds> bound = Timer(SessionTimer::kTeardown);
  ASSERT_TRUE(bound);
  EXPECT_GE(*bound, milliseconds(1'000 + 2'000 + 6'000));  // sum of the nodes' own limits
  now_ += *bound;
  Take(core().OnTimer(SessionTimer::kTeardown, milliseconds(100), now_));
  EXPECT_FALSE(IsFinished());
  EXPECT_EQ(Timer(SessionTimer::kTeardown), bound);
  now_ += *bound;
  Take(core().OnTimer(SessionTimer::kTeardown, std::nullopt, now_));
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(0, 1));
  EXPECT_TRUE(IsFinished());
  EXPECT_TRUE(core().end().HasGivenUp(0));
  EXPECT_NE(core().End().job.exit_code, 0);
}

// Output is dropped, because the reports of nodes wait behind their output.
TEST_F(SessionCoreTest, DropsOutputOfStalledReaderAfterInterrupt) {
  PlanFor(2, 2, 0);
  StartAll();
  Take(core().OnTimer(SessionTimer::kWatch, std::chrono::hours(1), now_));
  EXPECT_THAT(All<action::DropOutput>(), testing::SizeIs(0));
  Take(core().OnSignal(SIGINT, now_));
  Take(core().OnTimer(SessionTimer::kWatch, std::nullopt, now_));
  Take(core().OnTimer(SessionTimer::kWatch, milliseconds(1'500), now_));
  EXPECT_THAT(All<action::DropOutput>(), testing::SizeIs(0));
  Take(core().OnTimer(SessionTimer::kWatch, milliseconds(2'000), now_));
  EXPECT_THAT(All<action::DropOutput>(), testing::SizeIs(1));
  EXPECT_TRUE(core().end().output_is_dropped());
  Take(core().OnTimer(SessionTimer::kWatch, milliseconds(2'500), now_));
  EXPECT_THAT(All<action::DropOutput>(), testing::SizeIs(0));
}

TEST_F(SessionCoreTest, DropsOutputBeforeGivingUpNodes) {
  PlanFor(1, 1, 0);
  StartAll();
  Receive(0, Outcome());
  now_ += *Timer(SessionTimer::kTeardown);
  Take(core().OnTimer(SessionTimer::kTeardown, std::chrono::seconds(61), now_));
  EXPECT_THAT(All<action::DropOutput>(), testing::SizeIs(1));
  EXPECT_FALSE(IsFinished());
  now_ += *Timer(SessionTimer::kTeardown);
  Take(core().OnTimer(SessionTimer::kTeardown, std::chrono::seconds(67), now_));
  EXPECT_TRUE(IsFinished());
}

TEST_F(SessionCoreTest, FirstInterruptStopsAndSecondKills) {
  PlanFor(2, 2, 3);
  StartAll();
  Take(core().OnSignal(SIGINT, now_));
  ASSERT_THAT(NodesOf<action::Stop>(), ElementsAre(0, 1));
  EXPECT_FALSE(All<action::Stop>()[0].kill_now);
  EXPECT_EQ(All<action::StopConnecting>().size(), 1u);
  now_ += milliseconds(50);
  Take(core().OnSignal(SIGINT, now_));
  EXPECT_THAT(actions_, IsEmpty());
  now_ += milliseconds(500);
  Take(core().OnSignal(SIGINT, now_));
  ASSERT_THAT(NodesOf<action::Stop>(), ElementsAre(0, 1));
  EXPECT_TRUE(All<action::Stop>()[0].kill_now);
  for (const size_t index : {0, 1}) Lose(index, /*supervisor_ended=*/true);
  EXPECT_TRUE(IsFinished());
  EXPECT_EQ(core().End().job.exit_code, 128 + SIGINT);
}

TEST_F(SessionCoreTest, InterruptBeforeStartEndsAtOnce) {
  PlanFor(2, 2, 0);
  Take(core().Start(now_));
  Take(core().OnSignal(SIGTERM, now_));
  EXPECT_TRUE(IsFinished());
  EXPECT_EQ(core().End().kind, SessionEnd::Kind::kInterrupted);
  EXPECT_THAT(core().End().lines,
              ElementsAre("interrupted by SIGTERM before anything was started"));
  EXPECT_EQ(core().End().job.exit_code, 128 + SIGTERM);
}

TEST_F(SessionCoreTest, ShowsStacksOnSigquitWhileRanksRun) {
  PlanFor(2, 2, 0);
  StartAll();
  Take(core().OnSignal(SIGQUIT, now_));
  ASSERT_EQ(All<action::ShowStacks>().size(), 1u);
  EXPECT_THAT(All<action::ShowStacks>()[0].nodes, ElementsAre(0, 1));
  EXPECT_FALSE(IsFinished());
}

TEST_F(SessionCoreTest, ForwardsUserSignalsToRanks) {
  PlanFor(2, 2, 0);
  StartAll();
  Take(core().OnSignal(SIGUSR1, now_));
  EXPECT_THAT(NodesOf<action::Signal>(), ElementsAre(0, 1));
  Take(core().OnSignal(SIGTSTP, now_));
  EXPECT_THAT(Logged(), HasSubstr("cannot be suspended"));
}

TEST_F(SessionCoreTest, DetachesOnceAllRanksRunAndAllNodesAgree) {
  PlanFor(2, 2, 0);
  options_.job.set_detachable(true);
  StartAll();
  pb::NodeEvent running;
  running.mutable_running();
  Receive(0, running);
  EXPECT_THAT(NodesOf<action::Detach>(), ElementsAre(0, 1));
  Receive(1, running);
  EXPECT_THAT(actions_, IsEmpty());
  Take(core().OnDetached({}, now_));
  EXPECT_FALSE(IsFinished());
  Take(core().OnDetached({}, now_));
  EXPECT_TRUE(IsFinished());
  EXPECT_EQ(core().End().kind, SessionEnd::Kind::kDetached);
}

TEST_F(SessionCoreTest, StopsJobIfNodeCannotDetach) {
  PlanFor(2, 2, 0);
  options_.job.set_detachable(true);
  StartAll();
  pb::NodeEvent running;
  running.mutable_running();
  Receive(0, running);
  Take(core().OnDetached(Error{ExitCode::kUnavailable, "node1: cannot detach"}, now_));
  EXPECT_THAT(NodesOf<action::Stop>(), ElementsAre(0, 1));
  Take(core().OnDetached({}, now_));
  EXPECT_FALSE(IsFinished());
}

// --- Leases and silence ---

TEST_F(SessionCoreTest, RenewIntervalFollowsHeartbeatAndLease) {
  const struct {
    uint32_t heartbeat_ms, lease_ms;
    milliseconds every;
  } cases[] = {{1'000, 60'000, milliseconds(1'000)},
               {5'000, 60'000, milliseconds(1'000)},
               {330, 60'000, milliseconds(330)},
               {1'000, 1'000, milliseconds(250)},
               {1'000, 0, milliseconds(1'000)}};
  PlanFor(1, 1, 0);
  for (const auto& c : cases) {
    options_.job.mutable_timeouts()->set_heartbeat_ms(c.heartbeat_ms);
    options_.job.mutable_timeouts()->set_lease_ms(c.lease_ms);
    core_.reset();
    Take(core().Start(now_));
    EXPECT_EQ(Timer(SessionTimer::kRenew), c.every) << c.heartbeat_ms << " " << c.lease_ms;
  }
}

TEST_F(SessionCoreTest, RenewsLeasesOfLiveNodesOnly) {
  PlanFor(2, 1, 3);
  StartAll();
  Take(core().OnRenewed(1, 77, now_));
  Take(core().OnTimer(SessionTimer::kRenew, std::nullopt, now_));
  ASSERT_THAT(NodesOf<action::Renew>(), ElementsAre(0, 1));
  EXPECT_EQ(All<action::Renew>()[0].last_seen_us, std::nullopt);
  EXPECT_EQ(All<action::Renew>()[1].last_seen_us, 77u);
  EXPECT_EQ(All<action::Renew>()[1].timeout, kCallTimeout);
  EXPECT_EQ(Timer(SessionTimer::kRenew), kRenewEvery);
  WatchFor(milliseconds(6'000), {0});
  Take(core().OnTimer(SessionTimer::kRenew, std::nullopt, now_));
  EXPECT_THAT(NodesOf<action::Renew>(), ElementsAre(0));
}

TEST_F(SessionCoreTest, AbortsPreparingNodeThatDoesNotAnswer) {
  PlanFor(1, 1, 0);
  Take(core().Start(now_));
  Connect(0);
  Take(core().OnTimer(SessionTimer::kRenew, std::nullopt, now_));
  EXPECT_EQ(All<action::Renew>()[0].timeout, milliseconds(6'000));
  Take(core().OnRenewed(0, std::nullopt, now_));
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(0));
  Take(core().OnTimer(SessionTimer::kRenew, std::nullopt, now_));
  EXPECT_THAT(NodesOf<action::Renew>(), IsEmpty());
}

TEST_F(SessionCoreTest, LeavesSilentNodeToOtherNodes) {
  PlanFor(2, 1, 3);
  StartAll();
  WatchFor(milliseconds(8'500), {0});
  EXPECT_TRUE(core().contact().SilentFor(1, now_) > milliseconds(8'000));
  EXPECT_FALSE(IsFinished());
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  core().contact().OnListening(1, now_);
  Watch();
  EXPECT_THAT(Logged(), HasSubstr("node1 sends heartbeats again"));
}

// It may be this machine that is cut off, and the nodes hold its lease.
TEST_F(SessionCoreTest, WaitsForLeaseIfAllNodesAreSilent) {
  PlanFor(2, 1, 3);
  StartAll();
  WatchFor(milliseconds(6'000), {});
  EXPECT_FALSE(IsFinished());
  EXPECT_THAT(Logged(), HasSubstr("no heartbeat from any node for 6 s; the job continues on the "
                                  "nodes, and ends if this lasts for 15 s (--lease_s)"));
  WatchFor(milliseconds(7'000), {});
  EXPECT_FALSE(IsFinished());
  Take(core().OnTimer(SessionTimer::kRenew, std::nullopt, now_));
  EXPECT_THAT(NodesOf<action::Renew>(), ElementsAre(0, 1));
  WatchFor(milliseconds(2'000), {});
  EXPECT_TRUE(IsFinished());
  const SessionEnd end = core().End();
  EXPECT_EQ(end.job.cause.kind(), pb::Cause::NODE_LOST);
  EXPECT_THAT(end.job.cause.message(), HasSubstr("no heartbeat from it for 15 s"));
}

TEST_F(SessionCoreTest, ReportsOnceThatRanksRunLongAfterOthersSucceeded) {
  PlanFor(3, 3, 0);
  RunAll();
  for (uint32_t i = 1; i < 3; ++i) {
    pb::NodeEvent started = Started(1, Everyone());
    started.mutable_started()->set_first_rank(i);
    started.mutable_started()->add_pids(4'711);
    Receive(i, started);
  }
  ReceiveSuccess(0, Everyone());
  WatchFor(milliseconds(59'500), {0, 1, 2});
  EXPECT_THAT(Logged(), IsEmpty());
  WatchFor(milliseconds(500), {0, 1, 2});
  EXPECT_THAT(Logged(), HasSubstr("rank 0 ended with exit code 0 over a minute ago, and ranks 1-2 "
                                  "still run; if they wait"));
  WatchFor(milliseconds(120'000), {0, 1, 2});
  EXPECT_THAT(Logged(), IsEmpty());
}

TEST_F(SessionCoreTest, ContinuesWhenNetworkReturns) {
  PlanFor(2, 2, 0);
  StartAll();
  WatchFor(milliseconds(13'000), {});
  core().contact().OnListening(1, now_);
  Watch();
  EXPECT_THAT(Logged(), HasSubstr("heartbeats arrive again"));
  core().contact().OnListening(0, now_);
  WatchFor(milliseconds(20'000), {0, 1});
  EXPECT_FALSE(IsFinished());
}

// The connections to the nodes return one by one, and a node may end before another sends.
TEST_F(SessionCoreTest, AllowsLateHeartbeatsAfterOwnCut) {
  PlanFor(2, 2, 0);
  StartAll();
  WatchFor(milliseconds(7'000), {});
  ReceiveSuccess(1, Everyone());
  WatchFor(milliseconds(5'000), {1});
  Lose(1, /*supervisor_ended=*/true);
  WatchFor(milliseconds(2'000), {});
  EXPECT_FALSE(IsFinished());
  EXPECT_FALSE(core().job_state().ending());
}

TEST_F(SessionCoreTest, WarnsOfNodeSilentAfterOwnCut) {
  PlanFor(2, 2, 0);
  StartAll();
  WatchFor(milliseconds(7'000), {});
  std::string logged;
  for (int i = 0; i < 24; ++i) {
    WatchFor(milliseconds(500), {1});
    logged += Logged();
  }
  EXPECT_THAT(logged, HasSubstr("no heartbeat from node0 for 6 s; the other nodes decide"));
}

// The silence of all nodes means that this process was cut off. That also applies before the first
// ranks run, and if the last heartbeats did not arrive at the same time.
TEST_F(SessionCoreTest, OwnCutAtStartLosesNoNode) {
  PlanFor(2, 2, 0);
  RunAll();
  now_ += milliseconds(900);
  core().contact().OnListening(1, now_);
  WatchFor(milliseconds(7'000), {});
  EXPECT_FALSE(core().job_state().ending());
}

TEST_F(SessionCoreTest, InterruptEndsWaitForLease) {
  PlanFor(2, 2, 0);
  StartAll();
  Take(core().OnSignal(SIGINT, now_));
  WatchFor(milliseconds(7'000), {});
  EXPECT_TRUE(IsFinished());
}

// The answer to a renewal ends the silence, because the agent's loop may be waiting for a disk, and
// with it all events.
TEST_F(SessionCoreTest, RenewalAnswerEndsSilence) {
  PlanFor(1, 1, 0);
  StartAll();
  for (int i = 0; i < 20; ++i) {
    WatchFor(milliseconds(1'000), {});
    Take(core().OnRenewed(0, 77, now_));
  }
  EXPECT_FALSE(IsFinished());
  EXPECT_EQ(core().contact().SilentFor(0, now_), milliseconds(0));
}

TEST_F(SessionCoreTest, ResetsSilenceAfterOwnStall) {
  PlanFor(2, 1, 3);
  StartAll();
  now_ += milliseconds(20'000);
  Watch();
  EXPECT_FALSE(IsFinished());
  EXPECT_EQ(core().contact().SilentFor(0, now_), milliseconds(0));
}

TEST_F(SessionCoreTest, IgnoresSilenceWhileTerminalIsSlow) {
  PlanFor(1, 1, 0);
  StartAll();
  core().contact().OnHolding(0);
  WatchFor(milliseconds(20'000), {});
  EXPECT_FALSE(IsFinished());
}

// --- Nodes that are lost ---

TEST_F(SessionCoreTest, AbortsAndRetriesNodeThatOthersLost) {
  PlanFor(3, 2, 3);
  StartAll();
  pb::NodeEvent restarting;
  restarting.mutable_restarting()->set_attempt(1);
  *restarting.mutable_restarting()->mutable_cause() =
      MakeCause(pb::Cause::NODE_LOST, 2, ExitCode::kUnavailable, "node2 was lost: silent");
  restarting.mutable_restarting()->set_reason("restart 1 of 3");
  Receive(0, restarting);
  // Node 1 still sends heartbeats to the front end.
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  WatchFor(milliseconds(5'500), {0, 1, 2});
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  WatchFor(milliseconds(500), {0, 1, 2});
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(2));
  Lose(2, /*supervisor_ended=*/false);
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(2));
  Connect(2);
  Prepare(2);
  EXPECT_THAT(NodesOf<action::Run>(), ElementsAre(2));
  EXPECT_THAT(Logged(), HasSubstr("node2 is connected again"));
}

TEST_F(SessionCoreTest, AbortsConnectionMadeAfterTheEnd) {
  PlanFor(2, 1, 3);
  StartAll();
  Lose(1, /*supervisor_ended=*/true);
  ASSERT_THAT(NodesOf<action::Connect>(), ElementsAre(1));
  Receive(0, Outcome());
  EXPECT_EQ(All<action::StopConnecting>().size(), 1u);
  Connect(1);
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(1));
  EXPECT_THAT(NodesOf<action::Prepare>(), IsEmpty());
}

// Nodes with their own command must not get a rank specification, because their command decides
// what their ranks run.
TEST_F(SessionCoreTest, SendsNoRankSpecToNodeWithOwnCommand) {
  PlanFor(2, 2, 0);
  options_.plan.launcher = Launcher::kPerNode;
  options_.job.mutable_ranks()->mutable_program()->add_argv("train.py");
  options_.job.mutable_ranks()->mutable_program()->add_argv("--password");
  options_.job.mutable_ranks()->mutable_program()->add_env()->set_value("a secret");
  options_.job.mutable_ranks()->mutable_program()->set_cwd("/home/alice");
  options_.job.mutable_ranks()->mutable_options()->set_role("a role");
  options_.job.mutable_ranks()->set_log_dir("/home/alice/logs");
  options_.job.mutable_ranks()->set_description("dslaunch train.py --password");
  options_.job.mutable_ranks()->set_save_pid(7);
  options_.job.mutable_ranks()->mutable_filtered()->add_stdout_texts("a filter");
  Take(core().Start(now_));
  Connect(0);
  Connect(1);
  const auto prepares = All<action::Prepare>();
  ASSERT_EQ(prepares.size(), 2u);
  const pb::RankSpec& ranks = prepares[0].request.job().ranks();
  EXPECT_EQ(ranks.program().argv(0), "train.py");
  EXPECT_EQ(ranks.options().role(), "a role");
  EXPECT_EQ(ranks.filtered().stdout_texts(0), "a filter");
  const pb::PrepareRequest& request = prepares[1].request;
  EXPECT_FALSE(request.job().has_ranks());
  EXPECT_EQ(NodeTable::Read(request.job().nodes())->size(), 2u);
  Prepare(0);
  Prepare(1);
  const auto runs = All<action::Run>();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_FALSE(runs[1].request.has_shown());
}

TEST_F(SessionCoreTest, RequestSizeDoesNotGrowWithJob) {
  PlanFor(5'000, 5'000, 0);
  Take(core().Start(now_));
  for (size_t i = 0; i < 5'000; ++i) Connect(i);
  const auto prepares = All<action::Prepare>();
  ASSERT_EQ(prepares.size(), 5'000u);
  EXPECT_LT(prepares.back().request.ByteSizeLong(), 200u);
}

TEST_F(SessionCoreTest, LimitsLargeRequestsUnderWay) {
  constexpr size_t kNodes = 40;
  PlanFor(kNodes, kNodes, 0);
  options_.job.mutable_ranks()->mutable_program()->add_argv(std::string(size_t{4} << 20, 'x'));
  Take(core().Start(now_));
  for (size_t i = 0; i < kNodes; ++i) Connect(i);
  EXPECT_EQ(NodesOf<action::Prepare>().size(), 32u);
  for (size_t i = 0; i + 1 < kNodes; ++i) {
    Prepare(i);
    if (i + 32 < kNodes)
      EXPECT_THAT(NodesOf<action::Prepare>(), ElementsAre(i + 32));
    else
      EXPECT_THAT(NodesOf<action::Prepare>(), IsEmpty());
  }
  Prepare(kNodes - 1);
  EXPECT_EQ(NodesOf<action::Run>().size(), kNodes);
}

class LostHostCoreTest : public SessionCoreTest {
 protected:
  void LoseHost(bool supervisor_ended) {
    PlanFor(3, 1, 3);
    StartAll();
    Take(core().OnStreamEnd(0, now_));
    EXPECT_THAT(NodesOf<action::AwaitEnd>(), ElementsAre(0));
    Take(core().OnLinkEnded(0, supervisor_ended, "", now_));
    // The node is connected again only once another node hosts the rendezvous.
    EXPECT_THAT(NodesOf<action::Connect>(), IsEmpty());
    for (const size_t index : {1, 2}) Receive(index, RendezvousLost(1, 0));
  }
};

TEST_F(LostHostCoreTest, FailsOverOnceSupervisorHasEnded) {
  LoseHost(/*supervisor_ended=*/true);
  Watch();
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
  const pb::FailoverRequest request = All<action::Failover>()[0].request;
  EXPECT_EQ(request.rendezvous_node(), 1u);
  EXPECT_EQ(request.restarts(), 1u);
  EXPECT_THAT(request.absent_nodes(), ElementsAre(0));
  Watch();
  EXPECT_THAT(NodesOf<action::Failover>(), IsEmpty());  // only one failover at a time
  pb::RendezvousOpened opened;
  opened.add_rendezvous_endpoints("10.0.0.2:2");
  Take(core().OnFailoverAnswered(1, 1, opened, now_));
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(2));
  EXPECT_THAT(All<action::Failover>()[0].request.rendezvous_endpoints(), ElementsAre("10.0.0.2:2"));
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(0));
  EXPECT_THAT(Logged(), HasSubstr("node1 hosts the rendezvous from now on"));
  Take(core().OnFailoverAnswered(2, 1, Error{ExitCode::kUnavailable, "node2: gone"}, now_));
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(2));
}

// The host received nothing from other nodes, and its ranks have ended.
TEST_F(LostHostCoreTest, ReplacesHostThatGaveRendezvousUp) {
  PlanFor(3, 1, 3);
  StartAll();
  Receive(0, RendezvousLost(1, 1));
  Watch();
  // The other nodes may not have noticed the loss yet.
  EXPECT_THAT(NodesOf<action::Failover>(), IsEmpty());
  for (const size_t index : {1, 2}) Receive(index, RendezvousLost(1, 0));
  Watch();
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  const pb::FailoverRequest request = All<action::Failover>()[0].request;
  // Node 0 may not receive this decision either.
  EXPECT_THAT(request.absent_nodes(), ElementsAre(0));
  EXPECT_EQ(request.cause().node_index(), 0u);
  pb::RendezvousOpened opened;
  opened.add_rendezvous_endpoints("10.0.0.2:2");
  Take(core().OnFailoverAnswered(1, 1, opened, now_));
  EXPECT_THAT(NodesOf<action::Failover>(), ElementsAre(0, 2));
  EXPECT_FALSE(core().job_state().given_up().contains(0));
}

// Only the messages from the host to the other nodes are dropped.
TEST_F(LostHostCoreTest, AbortsHostThatAllOtherNodesLost) {
  PlanFor(3, 1, 3);
  StartAll();
  Receive(1, RendezvousLost(1, 0));
  Watch();
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  Receive(2, RendezvousLost(1, 0));
  Watch();
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(0));
  // No failover begins before the ranks of the host have ended.
  EXPECT_THAT(NodesOf<action::Failover>(), IsEmpty());
  Lose(0, /*supervisor_ended=*/true);
  Watch();
  EXPECT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
}

// The host sees each of the other nodes leave, and reports the first as lost.
TEST_F(LostHostCoreTest, KeepsNodesThatLostAHostWhichReportsTheirLoss) {
  PlanFor(3, 1, 3);
  StartAll();
  pb::NodeEvent restarting;
  restarting.mutable_restarting()->set_attempt(1);
  *restarting.mutable_restarting()->mutable_cause() =
      MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "node1 was lost: it left");
  Receive(0, restarting);
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  for (const size_t index : {1, 2}) Receive(index, RendezvousLost(1, 0));
  Watch();
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(0));
  WatchFor(milliseconds(7'000), {1, 2});
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
  Lose(0, /*supervisor_ended=*/true);
  Watch();
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
  EXPECT_EQ(All<action::Failover>()[0].request.restarts(), 1u);
  pb::RendezvousOpened opened;
  opened.add_rendezvous_endpoints("10.0.0.2:2");
  Take(core().OnFailoverAnswered(1, 1, opened, now_));
  EXPECT_THAT(NodesOf<action::Failover>(), ElementsAre(2));
  Receive(1, Started(2, {1, 2}));
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
}

TEST_F(LostHostCoreTest, KeepsHostThatContinuesWithTheLastRestart) {
  PlanFor(3, 1, 1);
  StartAll();
  pb::NodeEvent started = Started(2, {0});
  started.mutable_started()->set_restart_count(1);
  Receive(0, started);
  for (const size_t index : {1, 2}) Receive(index, RendezvousLost(1, 0));
  Watch();
  EXPECT_THAT(NodesOf<action::Abort>(), IsEmpty());
}

TEST_F(LostHostCoreTest, ReusesHostThatGaveUpIfNoOtherIsLeft) {
  PlanFor(3, 1, 3);
  StartAll();
  Receive(0, RendezvousLost(1, 1));
  for (const size_t index : {1, 2}) Lose(index, /*supervisor_ended=*/true);
  Watch();
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(0));
  EXPECT_EQ(All<action::Failover>()[0].request.cause().node_index(), 1u);
  EXPECT_THAT(All<action::Failover>()[0].request.absent_nodes(), ElementsAre(1, 2));
}

TEST_F(LostHostCoreTest, WaitsForLeaseIfSupervisorMayLive) {
  LoseHost(/*supervisor_ended=*/false);
  const milliseconds gone_after = GoneAfter(options_.job.timeouts());
  WatchFor(gone_after - milliseconds(1'000), {1, 2});
  EXPECT_THAT(NodesOf<action::Failover>(), IsEmpty());
  WatchFor(milliseconds(500), {1, 2});
  EXPECT_THAT(NodesOf<action::Failover>(), IsEmpty());
  WatchFor(milliseconds(500), {1, 2});
  EXPECT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
}

TEST_F(LostHostCoreTest, PlantedBugDoesNotWait) {
  bug_ = SessionCore::PlantedBug::kFailsOverTooEarly;
  LoseHost(/*supervisor_ended=*/false);
  Watch();
  EXPECT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
}

TEST_F(LostHostCoreTest, AsksNextNodeIfFirstRefuses) {
  LoseHost(/*supervisor_ended=*/true);
  Watch();
  Take(core().OnFailoverAnswered(1, 1, Error{ExitCode::kUnavailable, "node1: gone"}, now_));
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(1));
  Lose(1, /*supervisor_ended=*/true);
  Watch();
  EXPECT_THAT(NodesOf<action::Failover>(), ElementsAre(2));
}

TEST_F(LostHostCoreTest, HoldsReconnectedNodeUntilFailover) {
  LoseHost(/*supervisor_ended=*/false);
  Lose(2, /*supervisor_ended=*/false);
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(2));
  Connect(2);
  EXPECT_THAT(NodesOf<action::Prepare>(), IsEmpty());
  WatchFor(GoneAfter(options_.job.timeouts()), {1});
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
  EXPECT_THAT(All<action::Failover>()[0].request.absent_nodes(), ElementsAre(0));
  pb::RendezvousOpened opened;
  opened.add_rendezvous_endpoints("10.0.0.2:2");
  Take(core().OnFailoverAnswered(1, 1, opened, now_));
  ASSERT_THAT(NodesOf<action::Prepare>(), ElementsAre(2));
  EXPECT_EQ(All<action::Prepare>()[0].request.rendezvous_node(), 1u);
  Prepare(2);
  ASSERT_THAT(NodesOf<action::Run>(), ElementsAre(2));
  EXPECT_THAT(All<action::Run>()[0].request.rendezvous_endpoints(), ElementsAre("10.0.0.2:2"));
}

TEST_F(LostHostCoreTest, ReconnectsNodePreparedForLostRendezvous) {
  PlanFor(3, 1, 3);
  StartAll();
  Lose(2, /*supervisor_ended=*/true);
  Connect(2);
  ASSERT_THAT(NodesOf<action::Prepare>(), ElementsAre(2));
  Lose(0, /*supervisor_ended=*/true);
  Prepare(2);
  EXPECT_THAT(NodesOf<action::Run>(), IsEmpty());
  EXPECT_THAT(NodesOf<action::Goodbye>(), ElementsAre(2));
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(2));
}

// The node was sent to the lost rendezvous before the loss was known.
TEST_F(LostHostCoreTest, ReconnectsNodeThatSoughtLostRendezvous) {
  PlanFor(3, 1, 3);
  StartAll();
  Lose(2, /*supervisor_ended=*/true);
  Connect(2);
  Prepare(2);
  ASSERT_THAT(NodesOf<action::Run>(), ElementsAre(2));
  Lose(0, /*supervisor_ended=*/true);
  Receive(1, RendezvousLost(1, 0));
  Receive(2, Outcome(MakeCause(pb::Cause::TIMED_OUT, 2, ExitCode::kTimedOut, "no rendezvous")));
  EXPECT_FALSE(core().job_state().ending());
  Watch();
  ASSERT_THAT(NodesOf<action::Failover>(), ElementsAre(1));
  pb::RendezvousOpened opened;
  opened.add_rendezvous_endpoints("10.0.0.2:2");
  Take(core().OnFailoverAnswered(1, 1, opened, now_));
  EXPECT_THAT(NodesOf<action::Abort>(), ElementsAre(2));
  Lose(2, /*supervisor_ended=*/true);
  EXPECT_THAT(NodesOf<action::Connect>(), ElementsAre(2));
}

TEST_F(LostHostCoreTest, StopsJobWithoutRestartLeft) {
  PlanFor(3, 1, 0);
  StartAll();
  Lose(0, /*supervisor_ended=*/true);
  for (const size_t index : {1, 2}) Receive(index, RendezvousLost(1, 0));
  Watch();
  EXPECT_THAT(NodesOf<action::Stop>(), ElementsAre(1, 2));
  EXPECT_THAT(Logged(), HasSubstr("no restart is left"));
  EXPECT_NE(Timer(SessionTimer::kTeardown), std::nullopt);
}

}  // namespace
}  // namespace dslaunch::session_core_test
