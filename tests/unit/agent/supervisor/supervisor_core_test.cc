// The supervisor's decisions, without processes or a clock.
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
  // A worker ends and is reaped.
  void Exit(uint32_t rank, const WorkerChange& change) {
    --left_;
    Do(core_.OnWorkerChange(rank, change));
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

  // Lets time pass; due timeouts happen at their time.
  void Pass(Ms time) {
    const Clock::time_point end = now_ + time;
    while (core_.wake() && *core_.wake() <= end) {
      now_ = std::max(now_, *core_.wake());
      Do(core_.OnTime(now_));
    }
    now_ = end;
  }
  // The machine stalls.
  void Stall(Ms time) {
    now_ += time;
    Do(core_.OnTime(now_));
  }

  // --- actions ---

  void Do(SupervisorActions actions) {
    for (SupervisorAction& action : actions) {
      EXPECT_STRNE(action.reason, "");
      std::visit([this](auto& what) { Do(what); }, action.what);
    }
  }
  void Do(const supervisor_action::SendToAgent& send) {
    const pb::SupervisorEvent& event = send.event;
    if (event.has_spawned())
      return Note("spawned " + std::to_string(event.spawned().local_rank()) + " as " +
                  std::to_string(event.spawned().pid()));
    if (event.has_spawn_failed())
      return Note("spawn failed " + std::to_string(event.spawn_failed().local_rank()) + ": " +
                  std::to_string(event.spawn_failed().error_number()) + ", " +
                  event.spawn_failed().step());
    if (event.has_exited()) {
      const pb::WorkerExited& exited = event.exited();
      return Note("exited " + std::to_string(exited.local_rank()) + ": " +
                  (exited.signal() != 0 ? "signal " + std::to_string(exited.signal())
                                        : std::to_string(exited.exit_code())) +
                  (exited.core_dumped() ? ", core" : "") +
                  (exited.out_of_memory() ? ", out of memory" : "") +
                  (exited.stopping() ? ", stopping" : ""));
    }
    if (event.has_stopped())
      return Note("stopped " + std::to_string(event.stopped().local_rank()) + ": " +
                  std::to_string(event.stopped().signal()));
    if (event.has_all_reaped())
      return Note("all reaped, left " + std::to_string(event.all_reaped().left_size()));
    if (event.has_front_end_gone()) return Note("front end gone");
    if (event.has_step_signal())
      return Note("step signal " + std::to_string(event.step_signal().signal()));
    if (event.has_front_end_connection())
      return Note(event.front_end_connection().is_broken() ? "connection broke"
                                                           : "connected again");
    if (event.has_workers_cgroup())
      return Note("cgroup " + event.workers_cgroup().folder() +
                  event.workers_cgroup().none_because());
    ADD_FAILURE() << event.ShortDebugString();
  }
  void Do(const supervisor_action::MakeCgroup& make) {
    EXPECT_EQ(make.job_id, "job");
    Do(core_.OnCgroup(cgroup_));
  }
  void Do(const supervisor_action::StartWatchdog& start) { Note("watchdog of " + start.job_id); }
  void Do(const supervisor_action::StartWorker& start) {
    EXPECT_EQ(start.shared->cwd(), "/home");
    const uint32_t rank = start.spec.local_rank();
    if (rank == fails_) return Do(core_.OnStartFailed(rank, {ENOENT, "execve"}));
    ++left_;
    ++last_pid_;
    if (starts_slowly_) return Note("starting " + std::to_string(rank));
    Do(core_.OnStarted(rank, last_pid_));
  }
  void Do(const supervisor_action::SignalWorkers& send) {
    Note("signal " + std::to_string(send.signal));
  }
  void Do(const supervisor_action::CountLeft&) {
    ++counts_;
    Do(core_.OnReaped(now_));  // other children are reaped before the count
    Do(core_.OnLeft({.ranks = left_, .apart = apart_}, now_));
  }
  void Do(const supervisor_action::SignalLeft& send) {
    Note((send.signal == SIGTERM ? "TERM" : "INT") + To(send.targets));
  }
  void Do(const supervisor_action::KillLeft& kill) {
    const std::string note = "KILL" + To(kill.targets);
    if (done_.empty() || done_.back() != note) Note(note);
  }
  void Do(const supervisor_action::ListLeft&) {
    if (ends_while_listed_) left_ = 0;
    LeftProcesses left;
    for (size_t i = 0; i < left_; ++i) {
      pb::LeftProcess& process = *left.Add();
      process.set_pid(static_cast<int32_t>(500 + i));
      process.set_command("python3");
      process.set_state("D");
    }
    Do(core_.OnLeftListed(left, now_));
  }
  void Do(const supervisor_action::ForgetWorkers&) { Note("forget"); }
  void Do(const supervisor_action::CloseInbound&) { Note("close inbound"); }
  void Do(const supervisor_action::RefuseFrontEnd&) { Note("refuse front end"); }
  void Do(const supervisor_action::KillAgent&) { Note("kill agent"); }
  void Do(const supervisor_action::Print& print) { Note("print " + print.line); }
  void Do(const supervisor_action::Finish& finish) {
    Note("finish " + std::to_string(finish.exit_code) +
         (finish.line.empty() ? "" : ": " + finish.line));
  }
  void Note(std::string what) { done_.push_back(std::move(what)); }
  static std::string To(KillTargets targets) {
    return targets == KillTargets::kAll ? " to all" : "";
  }

  // Returns the actions since the last call.
  std::vector<std::string> Done() { return std::exchange(done_, {}); }
  using Words = std::vector<std::string>;

  SupervisorCore core_{{.agent_pid = kAgentPid}};
  Clock::time_point now_ = kStart;
  Result<std::string> cgroup_ = std::string("/cgroup");
  size_t left_ = 0;   // number of processes in the ranks' session
  size_t apart_ = 0;  // number of processes in other sessions
  bool ends_while_listed_ = false;
  uint32_t fails_ = 999;
  bool starts_slowly_ = false;  // the test decides when a worker has started
  pid_t last_pid_ = 100;
  int counts_ = 0;
  std::vector<std::string> done_;
};

// --- workers ---

TEST_F(SupervisorCoreTest, FirstStartCreatesCgroupAndWatchdog) {
  Configure();
  EXPECT_EQ(Done(), Words());
  Spawn({0, 1});
  EXPECT_EQ(Done(),
            Words({"cgroup /cgroup", "watchdog of job", "spawned 0 as 101", "spawned 1 as 102"}));
  Spawn({2});
  EXPECT_EQ(Done(), Words({"spawned 2 as 103"}));
  EXPECT_EQ(counts_, 0);
}

TEST_F(SupervisorCoreTest, StartsDoNotWaitForEachOther) {
  Configure();
  starts_slowly_ = true;
  Spawn({0, 1});
  EXPECT_EQ(Done(), Words({"cgroup /cgroup", "watchdog of job", "starting 0", "starting 1"}));
  Do(core_.OnStarted(1, 102));
  Do(core_.OnStartFailed(0, {ENOENT, "execve"}));
  EXPECT_EQ(Done(), Words({"spawned 1 as 102", "spawn failed 0: 2, execve"}));
}

TEST_F(SupervisorCoreTest, StopEndsWorkerThatIsStillStarting) {
  Configure();
  starts_slowly_ = true;
  Spawn({0});
  Done();
  Stop();
  EXPECT_EQ(Done(), Words({"TERM"}));
  Do(core_.OnStarted(0, 101));
  Exit(0, {.signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"spawned 0 as 101", "exited 0: signal 15, stopping", "forget",
                           "all reaped, left 0"}));
}

TEST_F(SupervisorCoreTest, NextStartRetriesToCreateTheCgroup) {
  Configure();
  cgroup_ = Error{ExitCode::kUnavailable, "no cgroup v2"};
  Spawn({0});
  EXPECT_EQ(Done(), Words({"cgroup no cgroup v2", "watchdog of job", "spawned 0 as 101"}));
  Spawn({1});
  EXPECT_EQ(Done(), Words({"cgroup no cgroup v2", "spawned 1 as 102"}));
}

TEST_F(SupervisorCoreTest, ReportsFailedStartWhichMayBeRetried) {
  Configure();
  fails_ = 1;
  Spawn({0, 1});
  EXPECT_EQ(Done().back(), "spawn failed 1: 2, execve");
  fails_ = 999;
  Spawn({1, 0});
  EXPECT_EQ(Done(), Words({"spawned 1 as 102",
                           "spawn failed 0: 17, start a local rank that runs already"}));
}

TEST_F(SupervisorCoreTest, ReportsExitStopAndContinueOfWorkers) {
  Configure();
  Spawn({0, 1, 2});
  Done();
  Exit(0, {.event = WorkerEvent::kExited, .exit_code = 7});
  Exit(1, {.event = WorkerEvent::kKilled, .signal = SIGKILL, .out_of_memory = true});
  EXPECT_EQ(Done(), Words({"exited 0: 7", "exited 1: signal 9, out of memory"}));
  Do(core_.OnWorkerChange(2, {.event = WorkerEvent::kStopped, .signal = SIGSTOP}));
  Do(core_.OnWorkerChange(2, {.event = WorkerEvent::kContinued, .signal = SIGCONT}));
  Exit(2, {.event = WorkerEvent::kExited, .signal = SIGSEGV, .core_dumped = true});
  EXPECT_EQ(Done(), Words({"stopped 2: 19", "stopped 2: 0", "exited 2: signal 11, core"}));
  Do(core_.OnWorkerChange(5, {.event = WorkerEvent::kExited}));
  EXPECT_EQ(Done(), Words()) << "it never ran";
  EXPECT_EQ(counts_, 0);
}

TEST_F(SupervisorCoreTest, PassesOnASignalForWorkers) {
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(SIGUSR1);
  Request(std::move(request));
  EXPECT_EQ(Done(), Words({"signal 10"}));
}

// --- StopWorkers ---

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

TEST_F(SupervisorCoreTest, TermFollowsAnotherFirstSignal) {
  Configure(seconds(10));
  Spawn({0});
  left_ += 1;  // a child of the worker that ignores SIGINT
  Done();
  Stop(/*kill_now=*/false, SIGINT);
  EXPECT_EQ(Done(), Words({"INT"}));
  Pass(Ms(7'999));
  EXPECT_EQ(Done(), Words());
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGINT});
  EXPECT_EQ(Done(), Words({"exited 0: signal 2, stopping", "TERM"}));
  Pass(Ms(2'001));
  EXPECT_EQ(Done(), Words({"TERM", "TERM", "KILL"})) << "again for what lost it";
}

TEST_F(SupervisorCoreTest, StopOfAnEmptyNodeAnswersAtOnce) {
  Stop();
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorCoreTest, StopWaitsForTheLastDescendant) {
  Configure(seconds(10));
  Spawn({0});
  left_ += 1;  // a child of the worker
  Done();
  Stop();
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"TERM", "exited 0: signal 15, stopping"}));
  Pass(Ms(999));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"TERM"})) << "again for what lost it";
  Pass(seconds(9));
  EXPECT_EQ(Done().back(), "KILL");
  left_ = 0;
  Pass(Ms(50));
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorCoreTest, DoesNotSignalProcessApartThatEndsItself) {
  Configure(seconds(10));
  Spawn({0});
  apart_ = 1;
  Done();
  Stop();
  EXPECT_EQ(Done(), Words({"TERM"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping"}));
  apart_ = 0;
  Pass(Ms(1));
  Do(core_.OnReaped(now_));
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorCoreTest, SignalsProcessApartThatOutlivesTheRanks) {
  Configure(seconds(3));
  Spawn({0});
  apart_ = 1;
  Stop();
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  Done();
  Pass(Ms(499));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"TERM to all"}));
  Pass(Ms(2'500));
  EXPECT_EQ(Done(), Words({"TERM to all", "TERM to all", "KILL to all"}));
}

TEST_F(SupervisorCoreTest, KillNowCutsTheGraceShort) {
  Configure(seconds(60));
  Spawn({0});
  Stop();
  Done();
  Pass(seconds(1));
  Stop(/*kill_now=*/true);
  EXPECT_EQ(Done(), Words({"KILL"}));
  Exit(0, {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  EXPECT_EQ(Done(), Words({"exited 0: signal 9, stopping", "forget", "all reaped, left 0"}));
}

TEST_F(SupervisorCoreTest, ForeignSigkillDuringStopIsAFailure) {
  Configure(seconds(10));
  Spawn({0});
  Stop();
  Done();
  Exit(0, {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  EXPECT_EQ(Done()[0], "exited 0: signal 9");
}

TEST_F(SupervisorCoreTest, ReportsProcessesThatCannotBeEnded) {
  Configure(seconds(1), seconds(60), /*teardown=*/seconds(2));
  Spawn({0});
  Stop();
  Done();
  Pass(Ms(2'999));
  EXPECT_EQ(Done(), Words({"KILL"}));
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"print these processes did not end after SIGKILL: "
                           "500 (python3, D state)",
                           "all reaped, left 1"}));
}

TEST_F(SupervisorCoreTest, OmitsProcessThatEndsWhileListed) {
  Configure(seconds(1), seconds(60), /*teardown=*/seconds(2));
  Spawn({0});
  Stop();
  Pass(Ms(2'999));
  Done();
  ends_while_listed_ = true;
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorCoreTest, StartsNothingDuringStopAndUsesNewCgroupAfter) {
  Configure(seconds(10));
  Spawn({0});
  Stop();
  Done();
  Spawn({1, 2});
  EXPECT_EQ(Done(), Words({"spawn failed 1: 125, start while the node is being stopped",
                           "spawn failed 2: 125, start while the node is being stopped"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  Done();
  Spawn({0});
  EXPECT_EQ(Done(), Words({"cgroup /cgroup", "spawned 0 as 102"}));
  Exit(0, {.event = WorkerEvent::kExited, .exit_code = 9});
  EXPECT_EQ(Done(), Words({"exited 0: 9"})) << "of its own doing";
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

// The agent's own children have to end too, however long its last bytes have waited.
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
  Do(core_.OnConnectionResumed());  // arrived before the break was noticed here
  NoFrontEnd();                     // refers to the earlier break
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
