// Tests the supervisor's decisions, without processes or a clock.
#include "agent/supervisor/supervisor_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/wire/lease.h"
#include "tests/unit/agent/supervisor/action_text.h"

namespace dslaunch::supervisor_core_test {
namespace {

using std::chrono::seconds;
using Ms = milliseconds;

const Clock::time_point kStart{seconds(1'000)};
constexpr pid_t kAgentPid = 77;

// Carries out the core's actions like supervisor.cc, on processes that are only numbers, and
// records them as text.
class SupervisorCoreTest : public testing::Test {
 protected:
  // --- events ---

  void Configure(Ms grace = seconds(10), Ms agent_dead = seconds(60), Ms teardown = seconds(5)) {
    pb::SupervisorRequest request;
    request.mutable_configure()->set_job_id("job");
    request.mutable_configure()->set_grace_ms(static_cast<uint32_t>(grace.count()));
    request.mutable_configure()->set_teardown_ms(static_cast<uint32_t>(teardown.count()));
    request.mutable_configure()->set_agent_dead_ms(static_cast<uint32_t>(agent_dead.count()));
    Request(std::move(request));
  }
  void Request(pb::SupervisorRequest request) { Do(core_.OnRequest(std::move(request), now_)); }
  void Spawn(const std::vector<uint32_t>& local_ranks) {
    pb::SupervisorRequest request;
    request.mutable_spawn()->set_cwd("/home");
    for (const uint32_t rank : local_ranks)
      request.mutable_spawn()->add_workers()->set_local_rank(rank);
    Request(std::move(request));
  }
  void Stop(bool kill_now = false, int signal = 0) {
    pb::SupervisorRequest request;
    request.mutable_stop()->set_kill_now(kill_now);
    request.mutable_stop()->set_signal(signal);
    Request(std::move(request));
  }
  void Alive(std::optional<Ms> lease_left) {
    pb::SupervisorRequest request;
    request.mutable_alive();
    if (lease_left)
      request.mutable_alive()->set_lease_left_ms(static_cast<uint32_t>(lease_left->count()));
    Request(std::move(request));
  }
  void AliveInMajority(std::optional<Ms> lease_left) {
    pb::SupervisorRequest request;
    request.mutable_alive();
    if (lease_left) {
      request.mutable_alive()->set_majority_lease_left_ms(
          static_cast<uint32_t>(lease_left->count()));
    }
    Request(std::move(request));
  }
  void Detach() {
    pb::SupervisorRequest request;
    request.mutable_detach();
    Request(std::move(request));
  }
  // Ends and reaps a worker.
  void Exit(uint32_t rank, const WorkerChange& change) {
    --left_;
    Do(core_.workers().OnChange(rank, change));
    Do(core_.OnReaped(now_));
  }
  void AgentEnds(int code, bool by_signal = false) {
    Do(core_.OnAgentEnd({code, by_signal}));
    Do(core_.OnReaped(now_));
  }
  void FrontEndGone() { Do(core_.OnFrontEndGone(now_)); }
  void ConnectionBroken() { Do(core_.OnConnectionBroken(now_)); }
  void NoFrontEnd() {
    pb::SupervisorRequest request;
    request.mutable_no_front_end();
    Request(std::move(request));
  }
  void OutboundEnds() { Do(core_.OnOutboundEnded(now_)); }

  // Advances the clock. Due timeouts happen at their time.
  void Pass(Ms time) {
    const Clock::time_point end = now_ + time;
    while (core_.wake() && *core_.wake() <= end) {
      now_ = std::max(now_, *core_.wake());
      Do(core_.OnTime(now_));
    }
    now_ = end;
  }
  // Stalls the machine: no timeout happens in between.
  void Stall(Ms time) {
    now_ += time;
    Do(core_.OnTime(now_));
  }

  // --- actions ---

  void Do(SupervisorActions actions) {
    for (SupervisorAction& action : actions) {
      EXPECT_STRNE(action.reason, "");
      AddText(action, done_);
      std::visit([this](auto& what) { Answer(what); }, action.what);
    }
  }
  template <class Other>
  void Answer(const Other&) {}
  void Answer(const supervisor_action::MakeCgroup& make) {
    EXPECT_EQ(make.job_id, "job");
    Do(core_.workers().OnCgroup(std::string("/cgroup")));
  }
  void Answer(const supervisor_action::StartWorker& start) {
    ++left_;
    Do(core_.workers().OnStarted(start.spec.local_rank(), ++last_pid_));
  }
  void Answer(const supervisor_action::CountLeft&) {
    EXPECT_TRUE(core_.workers().stopping());
    Do(core_.OnReaped(now_));  // other children are reaped before the count
    Do(core_.OnLeft({.ranks = left_}, now_));
  }
  void Answer(const supervisor_action::ListLeft&) {
    Do(core_.OnLeftListed(LeftProcessesOf(left_), now_));
  }

  // Returns the actions since the last call.
  std::vector<std::string> Done() { return std::exchange(done_, {}); }
  using Words = std::vector<std::string>;

  SupervisorCore core_{{.agent_pid = kAgentPid}};
  Clock::time_point now_ = kStart;
  size_t left_ = 0;  // number of processes in the ranks' session
  pid_t last_pid_ = 100;
  std::vector<std::string> done_;
};

// --- requests ---

TEST_F(SupervisorCoreTest, PassesOnASignalForWorkers) {
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(SIGUSR1);
  Request(std::move(request));
  EXPECT_EQ(Done(), Words({"signal 10"}));
}

TEST_F(SupervisorCoreTest, StopSendsTermThenKillAndAnswersOnce) {
  Configure(seconds(10));
  Spawn({0, 1});
  Done();
  Stop();
  EXPECT_EQ(Done(), Words({"TERM"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping"}));
  Pass(Ms(9'999));
  EXPECT_EQ(Done(), Words()) << "within the grace";
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"KILL"}));
  Exit(1, {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  EXPECT_EQ(Done(), Words({"exited 1: signal 9, stopping", "forget", "all reaped, left 0"}));
  Pass(seconds(40));
  EXPECT_EQ(Done(), Words());
}

TEST_F(SupervisorCoreTest, StopOfAnEmptyNodeAnswersAtOnce) {
  Stop();
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

// --- the agent and the lease ---

TEST_F(SupervisorCoreTest, KillsAndReportsSilentAgent) {
  Configure(seconds(10), /*agent_dead=*/Ms(600));
  Spawn({0});
  Done();
  Pass(Ms(500));
  Alive(std::nullopt);
  Pass(Ms(599));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"kill agent", "TERM"}));
  AgentEnds(SIGKILL, /*by_signal=*/true);
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  OutboundEnds();
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping", "forget",
                           "finish 70: agent (pid 77) was silent for 600 ms and was killed; its "
                           "workers were stopped"}));
}

TEST_F(SupervisorCoreTest, WatchesNothingBeforeConfigure) {
  EXPECT_FALSE(core_.wake());
  Alive(Ms(100));
  EXPECT_FALSE(core_.wake());
}

TEST_F(SupervisorCoreTest, ExpiredLeaseEndsWorkersButNotTheAgent) {
  Configure();
  Spawn({0});
  Done();
  Alive(seconds(5));
  Pass(Ms(4'999));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"front end gone", "TERM"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping", "forget"}));
  Alive(seconds(5));
  Spawn({0});
  EXPECT_EQ(Done(), Words({"spawn failed 0: 125, start while the node is being stopped"}));
  Pass(seconds(6));
  EXPECT_EQ(Done(), Words()) << "once";
}

TEST_F(SupervisorCoreTest, RenewedOrUnsetLeaseEndsNothing) {
  Configure();
  Spawn({0});
  Done();
  for (int i = 0; i < 5; ++i) {
    Alive(seconds(5));
    Pass(seconds(4));
  }
  Alive(std::nullopt);
  Pass(seconds(50));
  EXPECT_EQ(Done(), Words());
}

TEST_F(SupervisorCoreTest, GrantsTimeToAgentAndLeaseAfterAStall) {
  Configure(seconds(10), /*agent_dead=*/seconds(20));
  Spawn({0});
  Alive(seconds(5));
  Done();
  Stall(seconds(30));
  EXPECT_EQ(Done(), Words()) << "neither silence nor lease";
  Pass(Lease::kCatchUp - Ms(1));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"front end gone", "TERM"}));
}

// --- end ---

TEST_F(SupervisorCoreTest, EndsWithItsAgent) {
  Configure();
  AgentEnds(0);
  EXPECT_EQ(Done(), Words({"forget"}));
  OutboundEnds();
  EXPECT_EQ(Done(), Words({"finish 0"}));
  EXPECT_FALSE(core_.wake());
}

TEST_F(SupervisorCoreTest, ReportsExitCodeOfFailedAgent) {
  OutboundEnds();
  AgentEnds(3);
  EXPECT_EQ(Done(), Words({"forget",
                           "finish 70: agent (pid 77) ended with exit code 3; its workers were "
                           "stopped"}));
}

TEST_F(SupervisorCoreTest, DeadAgentEndsItsWorkers) {
  Configure();
  Spawn({0});
  Done();
  OutboundEnds();
  AgentEnds(SIGSEGV, /*by_signal=*/true);
  EXPECT_EQ(Done(), Words({"TERM"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping", "forget",
                           "finish 70: agent (pid 77) was killed by SIGSEGV; its workers were "
                           "stopped"}));
}

TEST_F(SupervisorCoreTest, KillsAgentThatClosesItsSocketAfterALimit) {
  Configure();
  Do(core_.OnControlLost(now_));
  EXPECT_EQ(Done(), Words({"forget"}));
  Pass(Ms(1'999));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"kill agent"}));
  AgentEnds(SIGKILL, /*by_signal=*/true);
  OutboundEnds();
  EXPECT_EQ(Done(),
            Words({"forget",
                   "finish 70: agent (pid 77) left its supervisor, did not end and was killed; "
                   "its workers were stopped"}));
}

TEST_F(SupervisorCoreTest, EndsIfAgentSurvivesSigkill) {
  Configure();
  FrontEndGone();
  Pass(Ms(2'000));
  EXPECT_EQ(Done().back(), "kill agent");
  OutboundEnds();
  Pass(Ms(1'999));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"finish 70: agent (pid 77) could not be ended; its workers were "
                           "stopped"}));
}

// The agent's own children must also end, however long its last bytes have waited.
TEST_F(SupervisorCoreTest, EndsChildrenOfAgentThatDiesLate) {
  Configure(seconds(10));
  FrontEndGone();
  Pass(Ms(4'000));
  EXPECT_EQ(Done().back(), "kill agent");
  left_ = 1;
  AgentEnds(SIGKILL, /*by_signal=*/true);
  EXPECT_EQ(Done(), Words({"TERM"}));
  Pass(Ms(4'000));
  EXPECT_EQ(Done(), Words({"TERM", "TERM", "TERM", "TERM"})) << "within the grace";
  left_ = 0;
  Do(core_.OnReaped(now_));
  EXPECT_EQ(Done(), Words({"forget", "finish 0"}));
}

TEST_F(SupervisorCoreTest, FrontEndLossStopsWorkersThenFinishes) {
  Configure(seconds(10));
  Spawn({0});
  Done();
  FrontEndGone();
  EXPECT_EQ(Done(), Words({"close inbound", "front end gone", "TERM"}));
  AgentEnds(0);
  FrontEndGone();
  EXPECT_EQ(Done(), Words()) << "the worker is left";
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping", "forget"}));
  Pass(Ms(1'999));
  EXPECT_EQ(Done(), Words()) << "the agent's last bytes are on their way";
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"finish 0"}));
}

TEST_F(SupervisorCoreTest, SignalEndsAllWithItsNumber) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU}) {
    core_ = SupervisorCore({.agent_pid = kAgentPid});
    Do(core_.OnSignal(signal, now_));
    AgentEnds(1);
    OutboundEnds();
    const std::vector<std::string> done = Done();
    EXPECT_EQ(done[0], "close inbound");
    EXPECT_EQ(done[1], "front end gone");
    EXPECT_EQ(done.back(),
              "finish 70: agent (pid 77) ended with exit code 1; its workers were "
              "stopped");
  }
  core_ = SupervisorCore({.agent_pid = kAgentPid});
  Do(core_.OnSignal(SIGTERM, now_));
  AgentEnds(0);
  OutboundEnds();
  EXPECT_EQ(Done().back(), "finish " + std::to_string(128 + SIGTERM));
}

TEST_F(SupervisorCoreTest, LeavesEndOfSlurmStepToAgent) {
  core_ = SupervisorCore({.agent_pid = kAgentPid, .in_step = true});
  Configure();
  Spawn({0});
  Done();
  Do(core_.OnSignal(SIGTERM, now_));
  EXPECT_EQ(Done(), Words({"step signal " + std::to_string(SIGTERM)}));
  Stop();
  EXPECT_EQ(Done(), Words({"TERM"}));
}

TEST_F(SupervisorCoreTest, PassesUserSignalsToWorkers) {
  for (const bool in_step : {false, true}) {
    core_ = SupervisorCore({.agent_pid = kAgentPid, .in_step = in_step});
    Configure();
    Spawn({0});
    Done();
    Do(core_.OnSignal(SIGUSR1, now_));
    EXPECT_EQ(Done(), Words({"signal " + std::to_string(SIGUSR1)}));
  }
}

TEST_F(SupervisorCoreTest, DetachedIgnoresLossOfFrontEndAndLogout) {
  Configure();
  Spawn({0});
  Alive(seconds(5));
  Detach();
  Done();
  FrontEndGone();
  EXPECT_EQ(Done(), Words({"close inbound"}));
  Do(core_.OnSignal(SIGHUP, now_));
  Alive(seconds(5));
  Pass(seconds(30));
  EXPECT_EQ(Done(), Words());
  Do(core_.OnSignal(SIGTERM, now_));
  EXPECT_EQ(Done(), Words({"close inbound", "front end gone", "TERM"}));
}

TEST_F(SupervisorCoreTest, DetachedMajorityLeaseEndsOnlyThisAttempt) {
  Configure();
  Spawn({0});
  Detach();
  AliveInMajority(seconds(5));
  Done();
  Pass(seconds(5));
  EXPECT_EQ(Done(), Words({"front end gone", "TERM"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  Done();
  AliveInMajority(Ms(0));
  Spawn({0});
  EXPECT_EQ(Done(), Words({"spawn failed 0: 125, start while the node is being stopped"}));
  AliveInMajority(std::nullopt);  // no ranks may run, so no lease applies
  Spawn({0});
  EXPECT_FALSE(Done().empty());
  EXPECT_EQ(core_.wake().has_value(), true);
}

TEST_F(SupervisorCoreTest, FrontEndThatReturnsInTimeEndsNothing) {
  Configure();
  Spawn({0});
  Done();
  for (int i = 0; i < 3; ++i) {
    ConnectionBroken();
    EXPECT_EQ(Done(), Words({"connection broke"}));
    Pass(Ms(3'900));
    Do(core_.OnConnectionResumed());
    EXPECT_EQ(Done(), Words({"connected again"}));
  }
  Do(core_.OnConnectionResumed());  // a connection resumed whose break was not reported yet
  // Front end lost, reported after the connection was resumed, so ignored.
  NoFrontEnd();
  Pass(seconds(10));
  EXPECT_EQ(Done(), Words());
}

TEST_F(SupervisorCoreTest, EndsIfFrontEndDoesNotReturn) {
  Configure();
  Spawn({0});
  ConnectionBroken();
  Done();
  Pass(Ms(3'999));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"refuse front end", "close inbound", "front end gone", "TERM"}));
}

TEST_F(SupervisorCoreTest, EndsAtOnceIfFrontEndIsKnownToBeDead) {
  Configure();
  Spawn({0});
  ConnectionBroken();
  Done();
  NoFrontEnd();
  EXPECT_EQ(Done(), Words({"refuse front end", "close inbound", "front end gone", "TERM"}));
}

TEST_F(SupervisorCoreTest, RefusesFrontEndWhenEndingOrDetached) {
  Configure();
  AgentEnds(0);
  Done();
  ConnectionBroken();
  EXPECT_EQ(Done(), Words({"refuse front end"}));
  core_ = SupervisorCore({.agent_pid = kAgentPid});
  Configure();
  Detach();
  ConnectionBroken();
  EXPECT_EQ(Done(), Words({"refuse front end", "close inbound"}));
}

TEST_F(SupervisorCoreTest, DoesNotWaitAgainForUnkillableProcesses) {
  Configure(seconds(1), seconds(60), /*teardown=*/seconds(1));
  Spawn({0});
  Stop();
  Pass(seconds(2));
  EXPECT_EQ(Done().back(), "all reaped, left 1");
  OutboundEnds();
  AgentEnds(0);
  EXPECT_EQ(Done(), Words({"finish 0"}));
}

TEST_F(SupervisorCoreTest, PlantedBugAppearsOnlyOnRequest) {
  core_ = SupervisorCore({.agent_pid = kAgentPid, .plant_early_reaped = true});
  Configure(seconds(10));
  Spawn({0, 1});
  Stop();
  Done();
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done().back(), "all reaped, left 0") << "though one is left";
}

}  // namespace
}  // namespace dslaunch::supervisor_core_test
