// Tests the agent's state machine on a simulated clock: which actions it requests for each event,
// and the reasons that it gives.
#include "agent/core/agent_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <utility>

#include "base/exit_code.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"
#include "rendezvous/majority.h"

namespace dslaunch::agent_core_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Phase = WorkersCore::Phase;

constexpr uint32_t kPort = 4711;

class AgentCoreTest : public ::testing::Test {
 protected:
  AgentCoreTest() {
    prepare_.mutable_job()->set_job_id("b0b");
    prepare_.set_node_index(1);
    std::vector<pb::Node> nodes(3);
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].set_name("node" + std::to_string(i + 1));
      nodes[i].set_slots(2);
    }
    *prepare_.mutable_job()->mutable_nodes() = PackNodes(nodes);
    prepare_.mutable_job()->mutable_ranks()->mutable_program()->add_argv("python3");
    pb::Timeouts& timeouts = *prepare_.mutable_job()->mutable_timeouts();
    timeouts.set_grace_ms(5'000);
    timeouts.set_teardown_ms(4'000);
    timeouts.set_join_ms(60'000);
    timeouts.set_heartbeat_ms(2'000);
    timeouts.set_dead_ms(6'000);
    timeouts.set_lease_ms(30'000);
    prepare_.mutable_job()->mutable_policy()->set_max_restarts(3);
  }

  // --- Events ---

  // Keeps the requested actions, and answers each at once as a healthy machine would.
  void Settle() { Keep(core_.Take(now_)); }
  void Keep(AgentActions actions) {
    for (AgentAction& action : actions) {
      Answer(actions_.emplace_back(std::move(action)));
      Settle();
    }
  }
  void Answer(AgentAction asked) {
    if (const auto* plan = std::get_if<agent_action::PlanWorkers>(&asked); plan && answers_)
      core_.workers().OnPlanned(plan->attempt, Specs(plan->assignment));
    if (const auto* reserve = std::get_if<agent_action::ReservePort>(&asked);
        reserve && answers_ && !reserve->check)
      core_.OnPortReserved(kPort, "", now_);
    if (const auto* describe = std::get_if<agent_action::DescribeWorker>(&asked))
      core_.OnWorkerDescribed(*describe, EndOf(describe->exited), 300, now_ + milliseconds(2));
    if (std::holds_alternative<agent_action::SweepOrphans>(asked)) core_.OnAllReaped({}, now_);
  }
  void Prepare() {
    ASSERT_TRUE(core_.job().OnPrepare(prepare_).ok());
    core_.OnPrepared();
    Settle();
  }
  // Makes the node join the rendezvous on node1.
  void Join() {
    Prepare();
    core_.membership().OnRun({"10.0.0.1:40"}, now_);
    Settle();
    core_.membership().OnFound(std::string("10.0.0.1"), now_);
    Settle();
    actions_.clear();
  }
  void Receive(uint64_t attempt, const std::function<void(pb::RendezvousMessage&)>& fill) {
    pb::RendezvousMessage message;
    message.set_attempt(attempt);
    fill(message);
    core_.OnRendezvousMessage(message, now_, boot_now_);
    Settle();
  }
  void Assign(uint64_t attempt) {
    Receive(attempt, [](pb::RendezvousMessage& message) {
      pb::Assignment& assignment = *message.mutable_assignment();
      assignment.set_first_rank(2);
      assignment.set_world_size(6);
      assignment.set_master_addr("10.0.0.1");
      assignment.set_master_port(5000);
      *assignment.mutable_members() = ToNodeSet({0, 1, 2});
    });
  }
  void Drain(uint64_t attempt) {
    Receive(attempt, [](pb::RendezvousMessage& message) {
      *message.mutable_drain()->mutable_cause() =
          MakeCause(pb::Cause::NODE_LOST, 2, ExitCode::kUnavailable, "node3 was lost");
      message.mutable_drain()->set_reason("1 restart of 3");
    });
  }
  void StopAll(uint64_t attempt, const pb::Cause& cause = {}) {
    Receive(attempt, [&](pb::RendezvousMessage& message) {
      *message.mutable_stop()->mutable_cause() = cause;
    });
  }
  void Close(uint64_t attempt) {
    Receive(attempt, [](pb::RendezvousMessage& message) {
      message.mutable_completed()->set_teardown_complete(true);
    });
  }
  void Supervisor(const std::function<void(pb::SupervisorEvent&)>& fill) {
    pb::SupervisorEvent event;
    fill(event);
    core_.OnSupervisorEvent(event, now_);
    Settle();
  }
  void Spawned(uint32_t local_rank) {
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_spawned()->set_local_rank(local_rank);
      event.mutable_spawned()->set_pid(100 + static_cast<int>(local_rank));
    });
  }
  void Exited(uint32_t local_rank, int exit_code, bool stopping = false) {
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_exited()->set_local_rank(local_rank);
      event.mutable_exited()->set_exit_code(exit_code);
      event.mutable_exited()->set_stopping(stopping);
    });
  }
  void Killed(uint32_t local_rank, int signal) {
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_exited()->set_local_rank(local_rank);
      event.mutable_exited()->set_signal(signal);
    });
  }
  void Status(uint32_t local_rank, const std::string& line) {
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_status()->set_local_rank(local_rank);
      event.mutable_status()->set_data(line + "\n");
    });
  }
  void MayBeLost(uint32_t local_rank) {
    Status(local_rank, R"({"event":"ready","loss_tolerated":true})");
  }
  void Reaped(bool all = true) {
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_all_reaped();
      if (!all) event.mutable_all_reaped()->add_left()->set_pid(77);
    });
  }
  void FrontEndGone() {
    Supervisor([](pb::SupervisorEvent& event) { event.mutable_front_end_gone(); });
  }
  void Connection(bool is_broken) {
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_front_end_connection()->set_is_broken(is_broken);
    });
  }
  // Advances the clocks by `time`, and then ticks. `late`: the delay of the tick.
  void Pass(milliseconds time, milliseconds late = milliseconds(0)) {
    now_ += time;
    boot_now_ += time;
    core_.OnTick(now_, boot_now_, late);
    Settle();
  }
  // Makes the node join and start its ranks.
  void Start() {
    Join();
    Assign(1);
    Spawned(0);
    Spawned(1);
    actions_.clear();
  }

  static pb::SpawnWorkers Specs(const pb::Assignment& assignment) {
    pb::SpawnWorkers specs;
    specs.add_argv("/bin/python3");
    for (uint32_t local_rank = 0; local_rank < 2; ++local_rank) {
      pb::WorkerSpec& spec = *specs.add_workers();
      spec.set_local_rank(local_rank);
      spec.set_rank(assignment.first_rank() + local_rank);
      spec.set_stdout_path("/logs/rank_" + std::to_string(spec.rank()) + "/stdout.log");
    }
    return specs;
  }
  WorkerEnd EndOf(const pb::WorkerExited& exited) const {
    WorkerEnd end;
    end.event.set_attempt(core_.workers().attempt());
    end.event.set_rank(core_.workers().ranks().Find(exited.local_rank())->rank);
    end.event.set_local_rank(exited.local_rank());
    end.event.set_exit_code(exited.exit_code());
    end.event.set_signal(exited.signal());
    end.event.set_stopping(exited.stopping());
    end.failed = IsFailure(exited);
    return end;
  }

  // --- Actions requested since actions_ was cleared ---

  template <class Action>
  std::vector<Action> All() const {
    std::vector<Action> all;
    for (const AgentAction& action : actions_) {
      if (const auto* one = std::get_if<Action>(&action)) all.push_back(*one);
    }
    return all;
  }
  template <class Action>
  size_t Count() const {
    return All<Action>().size();
  }
  std::string Logged() const {
    std::string text;
    for (const agent_action::Log& log : All<agent_action::Log>()) text += log.text + "\n";
    return text;
  }
  // Returns the newest message of this kind to the rendezvous; empty if there is none.
  pb::AgentMessage Sent(pb::AgentMessage::MessageCase kind) const {
    pb::AgentMessage found;
    for (const auto& send : All<agent_action::SendToRendezvous>()) {
      if (send.message.message_case() == kind) found = send.message;
    }
    return found;
  }
  pb::NodeEvent Record(pb::NodeEvent::EventCase kind) const {
    pb::NodeEvent found;
    for (const auto& emit : All<agent_action::EmitEvent>()) {
      if (emit.event.event_case() == kind) found = emit.event;
    }
    return found;
  }
  std::vector<pb::SupervisorRequest::RequestCase> Requests() const {
    std::vector<pb::SupervisorRequest::RequestCase> kinds;
    for (const auto& send : All<agent_action::SendToSupervisor>())
      kinds.push_back(send.request.request_case());
    return kinds;
  }

  Clock::time_point now_{milliseconds(1'000'000)};
  BootClock::time_point boot_now_{milliseconds(5'000'000)};
  AgentCore core_{AgentCoreOptions(), boot_now_};
  bool answers_ = true;
  pb::PrepareRequest prepare_;
  AgentActions actions_;
};

// --- The start ---

TEST_F(AgentCoreTest, StopsJobWhenOtherUserListensAtMasterPort) {
  Join();
  core_.workers().OnMasterPortTaken(54'321);
  Settle();
  EXPECT_FALSE(core_.workers().stopping()) << "there are no ranks yet";
  Assign(1);
  core_.workers().OnMasterPortTaken(54'321);
  Settle();
  EXPECT_TRUE(core_.workers().stopping());
  const pb::Cause cause = Sent(pb::AgentMessage::kStop).stop().cause();
  EXPECT_EQ(cause.exit_code(), ToInt(ExitCode::kUnavailable));
  EXPECT_THAT(cause.message(), HasSubstr("another user (uid 54321) listens at port 5000"));
}

pb::PmixAbort Aborted(uint32_t rank, int code, bool waits = false) {
  pb::PmixAbort aborted;
  aborted.set_rank(rank);
  aborted.set_code(code);
  aborted.set_waits(waits);
  return aborted;
}

// MPI_Abort with code 0 must not end the job with success: the calling process ends with another
// code and is the cause.
TEST_F(AgentCoreTest, MpiAbortWithCode0StopsJobAndNamesRank) {
  Join();
  core_.mpi().OnAbort(Aborted(3, 0));
  Settle();
  EXPECT_FALSE(core_.workers().stopping()) << "there are no ranks yet";
  Assign(1);
  core_.mpi().OnAbort(Aborted(3, 7));
  Settle();
  EXPECT_FALSE(core_.workers().stopping()) << "its exit code says it";
  core_.mpi().OnAbort(Aborted(1, 0));
  Settle();
  EXPECT_FALSE(core_.workers().stopping()) << "another node has this rank";
  core_.mpi().OnAbort(Aborted(3, 0));
  Settle();
  EXPECT_TRUE(core_.workers().stopping());
  const pb::Cause cause = Sent(pb::AgentMessage::kStop).stop().cause();
  EXPECT_EQ(cause.exit_code(), 1);
  EXPECT_EQ(cause.rank(), 3);
  EXPECT_EQ(cause.local_rank(), 1);
  EXPECT_EQ(cause.attempt(), 1u);
  EXPECT_EQ(cause.message(), "rank 3 (node2, local rank 1) called MPI_Abort with code 0");
  actions_.clear();
  core_.mpi().OnAbort(Aborted(2, 0));
  Settle();
  EXPECT_THAT(actions_, IsEmpty()) << "the first one is the cause";
}

TEST_F(AgentCoreTest, KillsRankThatWaitsAfterMpiAbortAndKeepsItsCode) {
  Start();
  core_.mpi().OnAbort(Aborted(2, 7, /*waits=*/true));
  Settle();
  core_.mpi().OnAbort(Aborted(3, 256, /*waits=*/true));
  Settle();
  const auto requests = All<agent_action::SendToSupervisor>();
  ASSERT_EQ(requests.size(), 2u);
  for (uint32_t local_rank = 0; local_rank < 2; ++local_rank) {
    EXPECT_EQ(requests[local_rank].request.signal().signal(), SIGKILL);
    EXPECT_EQ(requests[local_rank].request.signal().local_rank(), local_rank);
    Supervisor([&](pb::SupervisorEvent& event) {
      event.mutable_exited()->set_local_rank(local_rank);
      event.mutable_exited()->set_signal(SIGKILL);
    });
    const pb::Cause cause = Sent(pb::AgentMessage::kWorkerFailed).worker_failed().cause();
    EXPECT_EQ(cause.kind(), pb::Cause::WORKER_EXIT);
    EXPECT_EQ(cause.rank(), static_cast<int>(2 + local_rank));
    EXPECT_EQ(cause.exit_code(), local_rank == 0 ? 7 : 1) << "256 would be a success";
    EXPECT_EQ(cause.evidence(),
              std::string("it called MPI_Abort with code ") + (local_rank == 0 ? "7" : "256"));
  }
}

// Returns the state of a rank that has called MPI_Init.
pb::PmixRank MpiJoined(uint32_t local_rank) {
  pb::PmixRank rank;
  rank.set_local_rank(local_rank);
  rank.set_state(pb::PmixRank::JOINED);
  return rank;
}

pb::PmixRank MpiAnswer(uint32_t local_rank, pb::PmixRank::State state) {
  pb::PmixRank rank;
  rank.set_local_rank(local_rank);
  rank.set_state(state);
  rank.set_is_answer(true);
  return rank;
}

TEST_F(AgentCoreTest, FailsRankThatEndsWith0WithoutMpiFinalize) {
  Start();
  core_.mpi().OnRank(MpiJoined(0), now_);
  Settle();
  EXPECT_EQ(Sent(pb::AgentMessage::kMpiBegun).attempt(), 1u);
  Exited(0, 0);
  EXPECT_EQ(All<agent_action::AskMpiServer>().at(0).local_rank, 0u);
  EXPECT_EQ(Count<agent_action::DescribeWorker>(), 0u) << "the server knows what it did";
  core_.mpi().OnRank(MpiAnswer(0, pb::PmixRank::JOINED), now_);
  Settle();
  const pb::Cause cause = Sent(pb::AgentMessage::kWorkerFailed).worker_failed().cause();
  EXPECT_EQ(cause.rank(), 2);
  EXPECT_EQ(cause.exit_code(), 1);
  EXPECT_EQ(cause.evidence(), "it ended with 0 without MPI_Finalize, which counts as exit code 1");
  EXPECT_FALSE(cause.victim());
}

TEST_F(AgentCoreTest, RanksThatCalledMpiFinalizeSucceed) {
  Start();
  core_.mpi().OnRank(MpiJoined(0), now_);
  Settle();
  for (uint32_t local_rank = 0; local_rank < 2; ++local_rank) {
    Exited(local_rank, 0);
    core_.mpi().OnRank(MpiAnswer(local_rank, pb::PmixRank::FINALIZED), now_);
    Settle();
  }
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 1u);
  EXPECT_EQ(Sent(pb::AgentMessage::kWorkerFailed).attempt(), 0u);
}

TEST_F(AgentCoreTest, FailsRankThatEndedBeforeAnotherNodeBeganMpi) {
  Start();
  Exited(0, 0);
  Exited(1, 0);
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 1u);
  EXPECT_EQ(Count<agent_action::AskMpiServer>(), 0u);
  actions_.clear();
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_mpi_begun(); });
  EXPECT_EQ(Count<agent_action::StartMpiServer>(), 1u);
  EXPECT_EQ(Sent(pb::AgentMessage::kMpiBegun).attempt(), 0u) << "the rendezvous knows it";
  const pb::Cause cause = Sent(pb::AgentMessage::kWorkerFailed).worker_failed().cause();
  EXPECT_EQ(cause.rank(), 2);
  EXPECT_EQ(cause.exit_code(), 1);
  EXPECT_THAT(cause.evidence(), HasSubstr("without MPI_Init"));
}

TEST_F(AgentCoreTest, EndsHeldRankWhenMpiServerDoesNotAnswer) {
  Start();
  core_.mpi().OnRank(MpiJoined(0), now_);
  Settle();
  Exited(0, 0);
  now_ += milliseconds(5'000);
  core_.OnTick(now_, boot_now_, milliseconds(0));
  Settle();
  EXPECT_EQ(Count<agent_action::DescribeWorker>(), 1u);
  EXPECT_EQ(Sent(pb::AgentMessage::kWorkerFailed).attempt(), 0u);
}

TEST_F(AgentCoreTest, ReportsOnceRanksThatDoNotCallMpiInitForAMinute) {
  Start();
  core_.mpi().OnRank(MpiJoined(0), now_);
  Settle();
  std::vector<std::string> notices;
  for (const int seconds : {59, 1, 60}) {
    actions_.clear();
    now_ += std::chrono::seconds(seconds);
    // The tick is late, so messages that the rendezvous has sent in the meantime are still unread.
    core_.OnTick(now_, boot_now_, std::chrono::seconds(seconds));
    Settle();
    notices.push_back(Record(pb::NodeEvent::kNotice).notice().message());
  }
  EXPECT_THAT(notices, ElementsAre("", HasSubstr("node2: rank 3 has not called MPI_Init"), ""));
}

TEST_F(AgentCoreTest, PrepareConfiguresSupervisorAndStartsHeartbeats) {
  EXPECT_EQ(core_.tick_interval(), milliseconds(500));
  Prepare();
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kConfigure));
  const pb::Configure configure = All<agent_action::SendToSupervisor>().at(0).request.configure();
  EXPECT_EQ(configure.job_id(), "b0b");
  EXPECT_EQ(configure.grace_ms(), 5'000u);
  EXPECT_EQ(configure.agent_dead_ms(), 6'000u);
  const auto hearts = All<agent_action::StartHeart>();
  ASSERT_EQ(hearts.size(), 1u);
  EXPECT_EQ(hearts[0].interval, milliseconds(1'000));
  EXPECT_EQ(hearts[0].patience, milliseconds(30'000));
  EXPECT_EQ(hearts[0].ticks_per_beat, 1u);  // 1 because suspect_ms is not set
  EXPECT_EQ(core_.tick_interval(), milliseconds(1'000));
  EXPECT_EQ(core_.job().OnPrepare(prepare_).error().message, "the agent was prepared twice");
}

TEST_F(AgentCoreTest, SendsFewerHeartbeatsIfOneMayBeLate) {
  prepare_.mutable_job()->mutable_timeouts()->set_suspect_ms(4'000);
  Prepare();
  EXPECT_EQ(All<agent_action::StartHeart>().at(0).interval, milliseconds(1'000));
  EXPECT_EQ(All<agent_action::StartHeart>().at(0).ticks_per_beat, 2u);
}

TEST_F(AgentCoreTest, RejectsIncompleteJob) {
  pb::PrepareRequest bad = prepare_;
  bad.set_node_index(3);
  EXPECT_THAT(core_.job().OnPrepare(bad).error().message, HasSubstr("incomplete"));
  bad = prepare_;
  bad.mutable_job()->mutable_nodes()->clear_counts();
  EXPECT_THAT(core_.job().OnPrepare(bad).error().message, HasSubstr("no list of nodes"));
  bad = prepare_;
  bad.mutable_job()->mutable_ranks()->clear_program();
  EXPECT_THAT(core_.job().OnPrepare(bad).error().message, HasSubstr("incomplete"));
  EXPECT_FALSE(core_.job().prepared());
  EXPECT_TRUE(core_.job().OnPrepare(prepare_).ok());
}

TEST_F(AgentCoreTest, RunsProgramOfTheNodesOwnCommand) {
  pb::OwnPart own;
  own.mutable_ranks()->mutable_program()->add_argv("mine");
  own.mutable_ranks()->set_log_dir("/mine");
  own.set_slots(2);
  own.set_private_key("my key");
  own.mutable_ranks()->set_description("my command");
  EXPECT_TRUE(core_.job().OnOwn(own));
  EXPECT_FALSE(core_.job().OnOwn(own));
  pb::PrepareRequest foreign = prepare_;
  foreign.mutable_job()->mutable_nodes()->set_slots(0, 9);
  EXPECT_EQ(core_.job().OnPrepare(foreign).error().code, ExitCode::kNoPermission);
  prepare_.mutable_job()->set_detachable(true);
  prepare_.mutable_job()->mutable_node_check()->mutable_health()->add_argv("theirs");
  prepare_.mutable_job()->mutable_ranks()->clear_program();
  Prepare();
  EXPECT_EQ(core_.job().request().credentials().private_key(), "my key");
  EXPECT_EQ(core_.job().spec().ranks().description(), "my command");
  EXPECT_EQ(core_.job().spec().ranks().program().argv(0), "mine");
  EXPECT_EQ(core_.job().spec().ranks().log_dir(), "/mine");
  EXPECT_FALSE(core_.job().spec().detachable());
  EXPECT_FALSE(core_.job().spec().has_node_check());
}

TEST_F(AgentCoreTest, HostJoinsItsRendezvousInProcess) {
  prepare_.set_node_index(0);
  Prepare();
  EXPECT_TRUE(core_.membership().is_host());
  actions_.clear();
  core_.membership().OnRun({}, now_);
  Settle();
  const auto joins = All<agent_action::JoinRendezvous>();
  ASSERT_EQ(joins.size(), 1u);
  EXPECT_TRUE(joins[0].in_process);
  EXPECT_EQ(joins[0].join.slots(), 2u);
  EXPECT_EQ(Count<agent_action::FindRendezvous>(), 0u);
}

TEST_F(AgentCoreTest, OtherNodesFindRendezvousThenJoin) {
  Prepare();
  core_.membership().OnRun({"10.0.0.1:40"}, now_);
  Settle();
  const auto finds = All<agent_action::FindRendezvous>();
  ASSERT_EQ(finds.size(), 1u);
  EXPECT_THAT(finds[0].endpoints, ElementsAre("10.0.0.1:40"));
  EXPECT_EQ(finds[0].node_index, 0u);
  EXPECT_EQ(finds[0].limit, milliseconds(60'000));
  EXPECT_EQ(Count<agent_action::JoinRendezvous>(), 0u);
  core_.membership().OnFound(std::string("10.0.0.1"), now_);
  Settle();
  ASSERT_EQ(Count<agent_action::JoinRendezvous>(), 1u);
  EXPECT_FALSE(All<agent_action::JoinRendezvous>()[0].in_process);
  EXPECT_THAT(Logged(), HasSubstr("joining the rendezvous at 10.0.0.1"));
}

TEST_F(AgentCoreTest, StopsIfRendezvousIsNotFound) {
  Prepare();
  core_.membership().OnRun({"10.0.0.1:40"}, now_);
  Settle();
  core_.membership().OnFound(Error{ExitCode::kTimedOut, "no node answers"}, now_);
  Settle();
  EXPECT_EQ(core_.workers().phase(), Phase::kStopping);
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::TIMED_OUT);
  EXPECT_EQ(core_.teardown().outcome().message(), "node2: no node answers");
  Reaped();
  EXPECT_EQ(Count<agent_action::EndEvents>(), 1u);  // there is no rendezvous to wait for
}

// --- An attempt ---

TEST_F(AgentCoreTest, StartsAssignedRanksThenReportsReady) {
  Join();
  Assign(1);
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kSpawn));
  EXPECT_THAT(Logged(), HasSubstr("attempt 1: starting 2 of 6 ranks from rank 2"));
  Spawned(0);
  EXPECT_TRUE(Sent(pb::AgentMessage::kReady).ByteSizeLong() == 0);
  Spawned(1);
  EXPECT_EQ(Sent(pb::AgentMessage::kReady).attempt(), 1u);
  EXPECT_THAT(Record(pb::NodeEvent::kStarted).started().pids(), ElementsAre(100, 101));
  const auto followed = All<agent_action::FollowRank>();
  ASSERT_EQ(followed.size(), 2u);
  EXPECT_EQ(followed[1].folder, "/logs/rank_3");
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_all_ready(); });
  EXPECT_EQ(Record(pb::NodeEvent::kRunning).running().attempt(), 1u);
}

TEST_F(AgentCoreTest, RefusesRanksOfOldOrRunningAttempt) {
  Join();
  Assign(2);
  Assign(3);
  EXPECT_THAT(Logged(), HasSubstr("ranks for attempt 3 are refused: this node is in attempt 2"));
  Drain(2);
  Reaped();
  Assign(2);
  Assign(1);
  EXPECT_EQ(core_.workers().phase(), Phase::kIdle);
  EXPECT_EQ(Count<agent_action::PlanWorkers>(), 1u);
  Assign(3);
  EXPECT_EQ(core_.workers().attempt(), 3u);
}

TEST_F(AgentCoreTest, StopsJobIfRanksCannotBePlanned) {
  Join();
  answers_ = false;
  Assign(1);
  core_.workers().OnPlanned(7, Error{});  // plan of an attempt that has ended
  EXPECT_THAT(core_.Take(now_), IsEmpty());
  core_.workers().OnPlanned(1, Error{ExitCode::kIo, "node2: the disk is full"});
  Settle();
  EXPECT_EQ(Sent(pb::AgentMessage::kStop).stop().cause().kind(), pb::Cause::START_FAILED);
  EXPECT_EQ(core_.teardown().outcome().message(), "node2: the disk is full");
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop));
}

TEST_F(AgentCoreTest, StopsJobIfProgramCannotBeStarted) {
  Join();
  Assign(1);
  Supervisor([](pb::SupervisorEvent& event) {
    event.mutable_spawn_failed()->set_local_rank(1);
    event.mutable_spawn_failed()->set_step("execve");
    event.mutable_spawn_failed()->set_error_number(ENOENT);
  });
  const pb::Cause cause = Sent(pb::AgentMessage::kStop).stop().cause();
  EXPECT_EQ(cause.rank(), 3);
  EXPECT_EQ(cause.exit_code(), ToInt(ExitCode::kCannotExecute));
  EXPECT_EQ(cause.message(),
            "node2: cannot start /bin/python3 (execve): No such file or directory");
}

class FailedStartTest : public AgentCoreTest,
                        public ::testing::WithParamInterface<std::pair<int, ExitCode>> {};

TEST_P(FailedStartTest, StopsJobWithExitCodeOfError) {
  Join();
  Assign(1);
  Supervisor([](pb::SupervisorEvent& event) {
    event.mutable_spawn_failed()->set_step("pipe");
    event.mutable_spawn_failed()->set_error_number(GetParam().first);
  });
  EXPECT_EQ(Sent(pb::AgentMessage::kStop).stop().cause().exit_code(), ToInt(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(Errors, FailedStartTest,
                         ::testing::Values(std::pair(EMFILE, ExitCode::kUnavailable),
                                           std::pair(ENOSPC, ExitCode::kIo),
                                           std::pair(ETIMEDOUT, ExitCode::kTimedOut),
                                           std::pair(ECHILD, ExitCode::kInternal)));

TEST_F(AgentCoreTest, IgnoresFailedSpawnWhileDraining) {
  Join();
  Assign(1);
  Drain(1);
  actions_.clear();
  Supervisor([](pb::SupervisorEvent& event) { event.mutable_spawn_failed(); });
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(AgentCoreTest, ReportsAgeOfFailure) {
  Start();
  Exited(0, 0);
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 0u);
  EXPECT_EQ(Record(pb::NodeEvent::kWorkerEnded).worker_ended().rank(), 2u);
  Exited(1, 7);
  const pb::WorkerFailed failed = Sent(pb::AgentMessage::kWorkerFailed).worker_failed();
  EXPECT_EQ(failed.cause().rank(), 3);
  EXPECT_EQ(failed.cause().exit_code(), 7);
  EXPECT_EQ(failed.age_us(), 2'000u);
  EXPECT_EQ(failed.rtt_us(), 300u);
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 0u);
  EXPECT_THAT(Logged(), HasSubstr("rank 3 (node2, pid 101) exited with 7"));
}

TEST_F(AgentCoreTest, ReportsStepsWithFailure) {
  Start();
  Status(1, R"({"event":"step","step":31})");
  Exited(1, 7);
  const pb::WorkerFailed failed = Sent(pb::AgentMessage::kWorkerFailed).worker_failed();
  ASSERT_EQ(failed.ranks_size(), 1);
  EXPECT_EQ(failed.ranks(0).rank(), 3u);
  EXPECT_EQ(failed.ranks(0).step(), 31u);
}

TEST_F(AgentCoreTest, ReportsFinishedAfterLastRankSucceeds) {
  Start();
  Exited(1, 0);
  Exited(0, 0);
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 1u);
}

TEST_F(AgentCoreTest, ToleratesSignalledRankThatAllowsItsLoss) {
  Start();
  MayBeLost(1);
  Killed(1, SIGKILL);
  const pb::WorkerFailed lost = Sent(pb::AgentMessage::kWorkerFailed).worker_failed();
  EXPECT_TRUE(lost.tolerated());
  EXPECT_EQ(lost.cause().rank(), 3);
  EXPECT_EQ(lost.cause().signal(), SIGKILL);
  EXPECT_TRUE(Record(pb::NodeEvent::kWorkerEnded).worker_ended().tolerated());
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 0u);
  actions_.clear();
  Exited(0, 0);
  EXPECT_FALSE(Record(pb::NodeEvent::kWorkerEnded).worker_ended().tolerated());
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 1u);
}

TEST_F(AgentCoreTest, ReportsFinishedIfLastRankIsLostAndTolerated) {
  Start();
  MayBeLost(1);
  Exited(0, 0);
  Killed(1, SIGKILL);
  EXPECT_TRUE(Sent(pb::AgentMessage::kWorkerFailed).worker_failed().tolerated());
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 1u);
}

TEST_F(AgentCoreTest, KillsRankThatOtherRanksGaveUp) {
  Start();
  MayBeLost(1);
  actions_.clear();
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_end_rank()->set_rank(3); });
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_end_rank()->set_rank(3); });
  ASSERT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kSignal));
  const pb::SignalWorkers& sent = All<agent_action::SendToSupervisor>()[0].request.signal();
  EXPECT_EQ(sent.signal(), SIGKILL);
  EXPECT_EQ(sent.local_rank(), 1u);
  Killed(1, SIGKILL);
  const pb::WorkerFailed lost = Sent(pb::AgentMessage::kWorkerFailed).worker_failed();
  EXPECT_TRUE(lost.tolerated());
  EXPECT_EQ(lost.cause().evidence(), "it did not answer, and the others went on without it");
}

TEST_F(AgentCoreTest, KillsOnlyRanksOfAttemptThatAllowTheirLoss) {
  Start();
  MayBeLost(1);
  actions_.clear();
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_end_rank()->set_rank(2); });
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_end_rank()->set_rank(0); });
  Receive(2, [](pb::RendezvousMessage& message) { message.mutable_end_rank()->set_rank(3); });
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(AgentCoreTest, ReportsLostRankToRendezvousOnce) {
  Start();
  actions_.clear();
  for (const char* const line : {R"({"event":"lost","rank":0})", R"({"event":"lost","rank":0})",
                                 R"({"event":"lost","rank":1000000})"})
    Status(0, line);
  EXPECT_EQ(Count<agent_action::SendToRendezvous>(), 1u);
  EXPECT_EQ(Sent(pb::AgentMessage::kRankLost).rank_lost().rank(), 0u);
  EXPECT_EQ(Count<agent_action::EmitStatus>(), 0u);
}

TEST_F(AgentCoreTest, ReportsUntoleratedLossAsFailure) {
  Start();
  MayBeLost(1);
  Killed(0, SIGKILL);
  EXPECT_FALSE(Sent(pb::AgentMessage::kWorkerFailed).worker_failed().tolerated());
  actions_.clear();
  Exited(1, 65);
  EXPECT_FALSE(Sent(pb::AgentMessage::kWorkerFailed).worker_failed().tolerated());
  EXPECT_EQ(Sent(pb::AgentMessage::kFinished).attempt(), 0u);
}

TEST_F(AgentCoreTest, IgnoresRanksEndedByGracefulKill) {
  Start();
  StopAll(1);
  actions_.clear();
  Exited(0, 1, /*stopping=*/true);
  Exited(1, 0);
  EXPECT_EQ(Count<agent_action::SendToRendezvous>(), 0u);
  EXPECT_EQ(Count<agent_action::EmitEvent>(), 2u);
}

TEST_F(AgentCoreTest, EmitsStatusLinesAndCountsThemAsProgress) {
  Start();
  Supervisor([](pb::SupervisorEvent& event) {
    event.mutable_status()->set_local_rank(1);
    event.mutable_status()->set_data(
        "{\"event\":\"step\",\"step\":41}\nnonsense\n{\"event\":\"eval\",\"loss\":1}\n");
  });
  ASSERT_EQ(Count<agent_action::EmitStatus>(), 2u);
  EXPECT_EQ(All<agent_action::EmitStatus>()[0].kind, StatusKind::kProgress);
  EXPECT_EQ(All<agent_action::EmitStatus>()[1].kind, StatusKind::kEvaluation);
  EXPECT_EQ(All<agent_action::EmitStatus>()[0].rank, 3u);
  const auto progress = core_.workers().ranks().Progress(now_);
  ASSERT_EQ(progress.size(), 1u);
  EXPECT_EQ(progress[0].step(), 41u);
}

TEST_F(AgentCoreTest, InspectsOnlyRunningRanks) {
  Start();
  Exited(0, 0);
  Receive(1, [](pb::RendezvousMessage& message) {
    message.mutable_inspect()->add_ranks(2);
    message.mutable_inspect()->add_ranks(3);
    message.mutable_inspect()->set_reason("seems to hang: no step for 60 s");
  });
  const auto inspected = All<agent_action::InspectWorker>();
  ASSERT_EQ(inspected.size(), 1u);
  EXPECT_EQ(inspected[0].place.rank, 3u);
  EXPECT_EQ(inspected[0].place.local_rank, 1u);
  EXPECT_EQ(inspected[0].text, "rank 3 (node2, pid 101) seems to hang: no step for 60 s");
}

TEST_F(AgentCoreTest, NotifiesRendezvousWhenNodeLeaves) {
  Start();
  core_.OnStop(MakeCause(pb::Cause::NODE_LEFT, 0, ExitCode::kInterrupted, "it left"), false);
  Settle();
  const pb::Cause cause = Sent(pb::AgentMessage::kStop).stop().cause();
  EXPECT_EQ(cause.kind(), pb::Cause::NODE_LEFT);
  EXPECT_EQ(cause.node_index(), 1u);
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::NODE_LEFT);
  EXPECT_EQ(Count<agent_action::EndEvents>(), 0u);
  Reaped();
  EXPECT_EQ(Count<agent_action::EndEvents>(), 1u) << "it does not wait for the job's end";
}

// --- Drain, and another attempt ---

TEST_F(AgentCoreTest, ReportsDrainedAfterRanksAreReapedAndPortIsReserved) {
  Start();
  answers_ = false;
  Drain(1);
  EXPECT_EQ(core_.workers().phase(), Phase::kDraining);
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop));
  EXPECT_EQ(Record(pb::NodeEvent::kRestarting).restarting().reason(), "1 restart of 3");
  EXPECT_EQ(Count<agent_action::ReservePort>(), 0u);
  Reaped();
  ASSERT_EQ(Count<agent_action::EndRankOutput>(), 1u);
  EXPECT_TRUE(All<agent_action::EndRankOutput>()[0].others_follow);
  EXPECT_EQ(Count<agent_action::ReservePort>(), 1u);
  EXPECT_EQ(Count<agent_action::SendToRendezvous>(), 0u);
  core_.OnPortReserved(kPort, "", now_);
  Settle();
  EXPECT_EQ(core_.workers().phase(), Phase::kIdle);
  const pb::AgentMessage drained = Sent(pb::AgentMessage::kDrained);
  EXPECT_EQ(drained.attempt(), 1u);
  EXPECT_EQ(drained.drained().master_port(), kPort);
}

TEST_F(AgentCoreTest, ChecksItselfBeforeReportingDrained) {
  prepare_.mutable_job()->mutable_node_check();
  Start();
  Drain(1);
  EXPECT_EQ(Count<agent_action::ReservePort>(), 0u);
  Reaped();
  ASSERT_EQ(Count<agent_action::ReservePort>(), 1u);
  EXPECT_TRUE(All<agent_action::ReservePort>()[0].check);
  core_.OnPortReserved(kPort, "health command: it ended with 3", now_);
  Settle();
  EXPECT_EQ(Sent(pb::AgentMessage::kDrained).drained().unfit(), "health command: it ended with 3");
}

TEST_F(AgentCoreTest, SkipsCheckIfRendezvousIsLost) {
  prepare_.mutable_job()->mutable_node_check();
  Start();
  Drain(1);
  Reaped();
  core_.membership().OnEnd("Socket closed", now_);
  Settle();
  ASSERT_EQ(Count<agent_action::ReservePort>(), 2u);
  EXPECT_FALSE(All<agent_action::ReservePort>()[1].check);
  EXPECT_EQ(core_.workers().phase(), Phase::kIdle);
}

TEST_F(AgentCoreTest, PlantedBugReportsDrainedBeforeRanksAreReaped) {
  AgentCore planted({.plant_early_drained = true}, boot_now_);
  ASSERT_TRUE(planted.job().OnPrepare(prepare_).ok());
  planted.OnPrepared();
  planted.membership().OnRun({}, now_);
  planted.membership().OnFound(std::string("10.0.0.1"), now_);
  pb::RendezvousMessage drain;
  drain.set_attempt(1);
  drain.mutable_drain();
  planted.OnRendezvousMessage(drain, now_, boot_now_);
  Keep(planted.Take(now_));
  EXPECT_EQ(Count<agent_action::ReservePort>(), 1u);
}

TEST_F(AgentCoreTest, ReportsLeftProcessesWithDrained) {
  Start();
  Drain(1);
  Reaped(/*all=*/false);
  EXPECT_EQ(Sent(pb::AgentMessage::kDrained).drained().left(0).pid(), 77);
  EXPECT_THAT(Logged(), HasSubstr("processes are left that could not be ended"));
}

TEST_F(AgentCoreTest, SpareDrainsAndKeepsNumberOfAttempt) {
  Join();
  Drain(4);
  Reaped();
  EXPECT_EQ(Sent(pb::AgentMessage::kDrained).attempt(), 4u);
  Drain(3);  // request of an earlier attempt
  EXPECT_EQ(core_.workers().phase(), Phase::kIdle);
}

TEST_F(AgentCoreTest, StopsJobIfNoPortIsFreeForNextAttempt) {
  Start();
  answers_ = false;
  Drain(1);
  Reaped();
  core_.OnPortReserved(Error{ExitCode::kUnavailable, "no port is free"}, "", now_);
  Settle();
  EXPECT_EQ(Sent(pb::AgentMessage::kStop).stop().cause().message(), "node2: no port is free");
  EXPECT_EQ(core_.workers().phase(), Phase::kStopping);
}

TEST_F(AgentCoreTest, StopWhileDrainingTearsNodeDown) {
  Start();
  Drain(1);
  StopAll(1);
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop, pb::SupervisorRequest::kStop));
  Reaped();
  EXPECT_EQ(core_.workers().phase(), Phase::kTornDown);
  EXPECT_EQ(Sent(pb::AgentMessage::kDrained).attempt(), 0u);
  EXPECT_EQ(Sent(pb::AgentMessage::kTornDown).attempt(), 1u);
}

// --- The end ---

TEST_F(AgentCoreTest, KeepsFirstCauseAndForwardsOnlyKills) {
  Start();
  core_.OnStop(MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "SIGINT"), false);
  Settle();
  StopAll(1, MakeCause(pb::Cause::HANG, 0, ExitCode::kTimedOut, "a hang"));
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::INTERRUPTED);
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop));
  core_.OnStop(MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "twice"), true);
  Settle();
  ASSERT_EQ(Requests().size(), 2u);
  EXPECT_TRUE(All<agent_action::SendToSupervisor>()[1].request.stop().kill_now());
  EXPECT_EQ(core_.teardown().outcome().message(), "SIGINT");
  EXPECT_EQ(Count<agent_action::EmitEvent>(), 1u);
  EXPECT_THAT(Logged(), HasSubstr("stopping: SIGINT"));
  EXPECT_THAT(Logged(), HasSubstr("killing: twice"));
}

// Ctrl-C must send SIGINT to the ranks, because programs expect the same signal as at a terminal.
TEST_F(AgentCoreTest, CtrlCStopsRanksWithSigint) {
  Start();
  pb::Cause cause = MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "SIGINT");
  cause.set_signal(SIGINT);
  core_.OnStop(cause, false);
  Settle();
  EXPECT_EQ(All<agent_action::SendToSupervisor>()[0].request.stop().signal(), SIGINT);
}

TEST_F(AgentCoreTest, StopsJobWhenSlurmSignalsItsStep) {
  Start();
  Supervisor([](pb::SupervisorEvent& event) { event.mutable_step_signal()->set_signal(SIGTERM); });
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop));
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::INTERRUPTED);
  EXPECT_EQ(core_.teardown().outcome().exit_code(), 143);
  EXPECT_THAT(core_.teardown().outcome().message(),
              HasSubstr("Slurm sent SIGTERM to the job's step on"));
  Supervisor([](pb::SupervisorEvent& event) { event.mutable_step_signal()->set_signal(SIGTERM); });
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop)) << "once";
}

TEST_F(AgentCoreTest, OtherStopsUseJobsStopSignal) {
  Start();
  pb::Cause cause = MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "SIGTERM");
  cause.set_signal(SIGTERM);
  core_.OnStop(cause, false);
  Settle();
  EXPECT_EQ(All<agent_action::SendToSupervisor>()[0].request.stop().signal(), 0);
}

TEST_F(AgentCoreTest, EndsEventsAfterTeardownAndCompleted) {
  Start();
  StopAll(1);
  Close(1);
  EXPECT_EQ(Count<agent_action::EndEvents>(), 0u);
  Reaped();
  ASSERT_EQ(Count<agent_action::EndEvents>(), 1u);
  const pb::NodeDone done = All<agent_action::EndEvents>()[0].done;
  EXPECT_TRUE(done.completed());
  EXPECT_TRUE(done.teardown_complete());
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);  // because the front end still reads
}

TEST_F(AgentCoreTest, RefusedNodeEndsWithoutRendezvous) {
  Join();
  Receive(0, [](pb::RendezvousMessage& message) {
    *message.mutable_refused()->mutable_cause() =
        MakeCause(pb::Cause::START_FAILED, 1, ExitCode::kInternal, "too late");
  });
  Reaped();
  EXPECT_EQ(core_.teardown().outcome().message(), "too late");
  ASSERT_EQ(Count<agent_action::EndEvents>(), 1u);
  EXPECT_FALSE(All<agent_action::EndEvents>()[0].done.completed());
}

TEST_F(AgentCoreTest, StopsNodeAndWritesResultWithoutFrontEnd) {
  Start();
  FrontEndGone();
  // The other nodes may still have their front end, so they are notified.
  EXPECT_EQ(Sent(pb::AgentMessage::kStop).stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::FRONT_END_LOST);
  EXPECT_EQ(Count<agent_action::DetachFrontEnd>(), 1u);
  FrontEndGone();
  EXPECT_EQ(Count<agent_action::DetachFrontEnd>(), 1u);
  Reaped();
  // The rendezvous must first be notified that the node is empty.
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);
  Close(1);
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
  ASSERT_EQ(Count<agent_action::WriteResult>(), 1u);
  EXPECT_EQ(All<agent_action::WriteResult>()[0].result.job_id(), "b0b");
}

TEST_F(AgentCoreTest, ReportsBrokenFrontEndConnectionToRendezvous) {
  Start();
  Connection(/*is_broken=*/true);
  EXPECT_TRUE(Sent(pb::AgentMessage::kFrontEndConnection).front_end_connection().is_broken());
  EXPECT_FALSE(core_.workers().stopping());
  EXPECT_THAT(Requests(), IsEmpty());
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_no_front_end(); });
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kNoFrontEnd));
  EXPECT_FALSE(core_.workers().stopping()) << "its supervisor ends it";
}

TEST_F(AgentCoreTest, KeepsFrontEndThatReconnected) {
  Start();
  Connection(/*is_broken=*/true);
  actions_.clear();
  Connection(/*is_broken=*/false);
  EXPECT_EQ(Sent(pb::AgentMessage::kFrontEndConnection).message_case(),
            pb::AgentMessage::kFrontEndConnection);
  EXPECT_FALSE(Sent(pb::AgentMessage::kFrontEndConnection).front_end_connection().is_broken());
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_no_front_end(); });
  EXPECT_THAT(Requests(), IsEmpty()) << "that was said of the break before";
}

TEST_F(AgentCoreTest, DoesNotAwaitFrontEndWithoutRendezvous) {
  Prepare();
  actions_.clear();
  Connection(/*is_broken=*/true);
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kNoFrontEnd));
}

TEST_F(AgentCoreTest, StopsIfFrontEndAndRendezvousAreLost) {
  Start();
  Connection(/*is_broken=*/true);
  core_.membership().OnEnd("Socket closed", now_);
  Settle();
  EXPECT_THAT(Requests(),
              ElementsAre(pb::SupervisorRequest::kNoFrontEnd, pb::SupervisorRequest::kStop));
  EXPECT_EQ(core_.workers().phase(), Phase::kStopping)
      << "no front end can name another rendezvous";
}

TEST_F(AgentCoreTest, EmptyNodeQuitsOneSecondAfterTeardown) {
  Start();
  FrontEndGone();
  Reaped();
  Pass(milliseconds(900));
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);
  Pass(milliseconds(100));
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
  Pass(milliseconds(1'000));
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);  // sent only once
}

TEST_F(AgentCoreTest, ReportsEndOfOwnCommandAsLostNode) {
  pb::OwnPart own;
  own.mutable_ranks()->mutable_program()->add_argv("mine");
  own.set_slots(2);
  EXPECT_TRUE(core_.job().OnOwn(own));
  Start();
  FrontEndGone();
  EXPECT_EQ(Sent(pb::AgentMessage::kStop).stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::FRONT_END_LOST);
}

TEST_F(AgentCoreTest, DetectsFrontEndThatMissedThreeRenewals) {
  Start();
  core_.front_end().Renew(pb::RenewRequest(), boot_now_);
  EXPECT_FALSE(core_.front_end().IsUnasked(boot_now_));
  EXPECT_FALSE(core_.front_end().IsUnasked(boot_now_ + milliseconds(5'900)));
  EXPECT_TRUE(core_.front_end().IsUnasked(boot_now_ + milliseconds(6'000)));
}

TEST_F(AgentCoreTest, StopsWhenLeaseExpires) {
  Start();
  Pass(milliseconds(29'000));
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_heartbeat(); });
  EXPECT_EQ(core_.Alive(boot_now_).lease_left_ms(), 1'000u);
  EXPECT_EQ(core_.workers().phase(),
            Phase::kDraining);  // because only the rendezvous was silent for too long
  Pass(milliseconds(1'000));
  EXPECT_EQ(core_.workers().phase(), Phase::kStopping);
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::FRONT_END_LOST);
  EXPECT_THAT(Logged(), HasSubstr("the front end is gone"));
}

TEST_F(AgentCoreTest, KeepsRunningWhileLeaseIsRenewed) {
  Start();
  pb::RenewRequest word;
  for (int i = 0; i < 60; ++i) {
    word.set_last_seen_us(core_.front_end().Renew(word, boot_now_).clock_us());
    Receive(1, [](pb::RendezvousMessage& message) { message.mutable_heartbeat(); });
    Pass(milliseconds(1'000));
  }
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
}

TEST_F(AgentCoreTest, FrontEndIsLostOneSecondAfterStreamEnd) {
  Start();
  core_.front_end().OnStreamOver(now_);
  Settle();
  Pass(milliseconds(900));
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
  Pass(milliseconds(200));
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::FRONT_END_LOST);
}

TEST_F(AgentCoreTest, WaitsLongerForFrontEndThatHasAllEvents) {
  Start();
  StopAll(1);
  Reaped();
  Close(1);
  actions_.clear();
  core_.front_end().SetReaders({.front_end_has_all = true, .has_viewers = false});
  core_.front_end().OnStreamOver(now_);
  Settle();
  Pass(milliseconds(5'000));
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);
  FrontEndGone();
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
  EXPECT_EQ(Count<agent_action::WriteResult>(), 0u);  // because the front end has all events
}

// --- The rendezvous is lost ---

TEST_F(AgentCoreTest, StopsOnLostRendezvousWithoutRestarts) {
  prepare_.mutable_job()->mutable_policy()->set_max_restarts(0);
  Start();
  core_.membership().OnEnd("reset", now_);
  Settle();
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(core_.teardown().outcome().node_index(), 0u);
  EXPECT_EQ(core_.teardown().outcome().message(),
            "node1 was lost: the connection to its rendezvous broke (reset)");
  Reaped();
  ASSERT_EQ(Count<agent_action::EndEvents>(), 1u);
  EXPECT_FALSE(All<agent_action::EndEvents>()[0].done.teardown_complete());
}

TEST_F(AgentCoreTest, SilentRendezvousIsLostUnlessThisProcessStalled) {
  prepare_.mutable_job()->mutable_policy()->set_max_restarts(0);
  Start();
  Pass(milliseconds(6'000), /*late=*/milliseconds(5'000));
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
  Pass(milliseconds(7'900));  // sum of dead_ms and a heartbeat
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
  EXPECT_TRUE(core_.membership().IsQuiet(now_));
  Pass(milliseconds(100));
  EXPECT_THAT(core_.teardown().outcome().message(), HasSubstr("no heartbeat"));
}

TEST_F(AgentCoreTest, DrainsAndWaitsForFailoverOnLostRendezvous) {
  Start();
  core_.membership().OnEnd("reset", now_);
  Settle();
  EXPECT_EQ(core_.workers().phase(), Phase::kDraining);
  EXPECT_EQ(Count<agent_action::LeaveRendezvous>(), 1u);
  const pb::RendezvousLost lost = Record(pb::NodeEvent::kRendezvousLost).rendezvous_lost();
  EXPECT_EQ(lost.attempt(), 1u);
  EXPECT_FALSE(lost.idle());
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop));
  pb::FailoverRequest move;
  move.set_rendezvous_node(9);
  EXPECT_EQ(core_.membership().CheckFailover(move).error().code, ExitCode::kInternal);
  move.set_rendezvous_node(2);
  move.add_rendezvous_endpoints("10.0.0.3:40");
  ASSERT_TRUE(core_.membership().CheckFailover(move).ok());
  core_.membership().OnFailover(move, now_);
  Settle();
  EXPECT_EQ(Count<agent_action::FindRendezvous>(), 0u);  // because its ranks are not reaped yet
  Reaped();
  ASSERT_EQ(Count<agent_action::FindRendezvous>(), 1u);
  EXPECT_THAT(All<agent_action::FindRendezvous>()[0].endpoints, ElementsAre("10.0.0.3:40"));
  EXPECT_EQ(core_.membership().host(), 2u);
  EXPECT_EQ(Count<agent_action::SendToRendezvous>(), 0u);
  EXPECT_FALSE(core_.membership().CheckFailover(move).ok());
}

TEST_F(AgentCoreTest, IdleNodeHostsNextRendezvousAtOnce) {
  Join();
  core_.membership().OnEnd("reset", now_);
  Settle();
  EXPECT_TRUE(Record(pb::NodeEvent::kRendezvousLost).rendezvous_lost().idle());
  Reaped();
  pb::FailoverRequest move;
  move.set_rendezvous_node(1);
  ASSERT_TRUE(core_.membership().CheckFailover(move).ok());
  core_.membership().OnFailover(move, now_);
  Settle();
  EXPECT_TRUE(core_.membership().is_host());
  ASSERT_EQ(Count<agent_action::JoinRendezvous>(), 1u);
  EXPECT_TRUE(All<agent_action::JoinRendezvous>()[0].in_process);
  EXPECT_THAT(Logged(), HasSubstr("node2 hosts the rendezvous from now on"));
}

class CutOffHostTest : public AgentCoreTest {
 protected:
  void StartHost() {
    prepare_.set_node_index(0);
    Prepare();
    core_.membership().OnRun({}, now_);
    Settle();
    Assign(1);
    actions_.clear();
  }
  void CutOff() {
    Receive(1, [](pb::RendezvousMessage& message) {
      *message.mutable_cut_off()->mutable_cause() =
          MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "node2 was lost: silent");
    });
  }
};

TEST_F(CutOffHostTest, ReportsLossAfterItsRanksEnded) {
  StartHost();
  CutOff();
  EXPECT_EQ(Count<agent_action::LeaveRendezvous>(), 1u);
  EXPECT_FALSE(core_.membership().is_host());
  EXPECT_EQ(core_.workers().phase(), Phase::kDraining);
  EXPECT_FALSE(Record(pb::NodeEvent::kRendezvousLost).has_rendezvous_lost());
  Reaped();
  const pb::RendezvousLost lost = Record(pb::NodeEvent::kRendezvousLost).rendezvous_lost();
  EXPECT_EQ(lost.attempt(), 1u);
  EXPECT_EQ(lost.cause().message(), "node2 was lost: silent");
  pb::FailoverRequest move;
  move.set_rendezvous_node(0);
  ASSERT_TRUE(core_.membership().CheckFailover(move).ok());
  core_.membership().OnFailover(move, now_);
  Settle();
  EXPECT_TRUE(core_.membership().is_host());
}

TEST_F(CutOffHostTest, KeepsRendezvousWithoutRestarts) {
  prepare_.mutable_job()->mutable_policy()->set_max_restarts(0);
  StartHost();
  CutOff();
  EXPECT_TRUE(core_.membership().is_host());
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
}

TEST_F(CutOffHostTest, IgnoresCutOffOnAnotherNode) {
  Start();
  CutOff();
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
}

TEST_F(AgentCoreTest, StopsIfNoFailoverArrivesInTime) {
  Start();
  core_.membership().OnEnd("reset", now_);
  Settle();
  Reaped();
  pb::RenewRequest word;
  // The limit is lease + 2 dead + grace + teardown, plus 10 s.
  for (int second = 0; second < 60; ++second) {
    word.set_last_seen_us(core_.front_end().Renew(word, boot_now_).clock_us());
    Pass(milliseconds(1'000));
  }
  EXPECT_EQ(core_.workers().phase(), Phase::kIdle);
  Pass(milliseconds(1'000));
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(core_.workers().phase(), Phase::kStopping);
}

TEST_F(AgentCoreTest, StopsInsteadOfFailoverIfProcessesAreLeft) {
  Start();
  core_.membership().OnEnd("reset", now_);
  Settle();
  Reaped(/*all=*/false);
  EXPECT_EQ(core_.teardown().outcome().kind(), pb::Cause::INTERNAL);
  EXPECT_THAT(core_.teardown().outcome().message(), HasSubstr("processes are left"));
  pb::FailoverRequest move;
  EXPECT_EQ(core_.membership().CheckFailover(move).error().code, ExitCode::kUnavailable);
}

// --- Detached ---

TEST_F(AgentCoreTest, DetachedAgentQuitsAfterLastViewer) {
  prepare_.set_node_index(0);
  Prepare();
  core_.membership().OnRun({}, now_);
  Settle();
  Assign(1);
  actions_.clear();
  core_.OnDetach("/run/socket", now_, boot_now_);
  Settle();
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kDetach));
  EXPECT_FALSE(core_.Alive(boot_now_).has_lease_left_ms());
  core_.OnDetach("/run/socket", now_, boot_now_);
  core_.front_end().OnStreamOver(now_);
  EXPECT_THAT(core_.Take(now_), IsEmpty());
  for (int second = 0; second < 100; ++second) {
    Receive(1, [](pb::RendezvousMessage& message) { message.mutable_heartbeat(); });
    Pass(milliseconds(1'000));
  }
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
  StopAll(1);
  Reaped();
  core_.front_end().SetReaders({.front_end_has_all = false, .has_viewers = true});
  Close(1);
  EXPECT_EQ(Count<agent_action::WriteResult>(), 1u);
  Pass(milliseconds(600));
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);  // because a viewer has not received the last event
  core_.front_end().SetReaders({.front_end_has_all = false, .has_viewers = false});
  core_.teardown().QuitIfIdle(now_);
  Settle();
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

TEST_F(AgentCoreTest, WaitsTwoSecondsForViewerThatDoesNotRead) {
  Start();
  core_.OnDetach("/run/socket", now_, boot_now_);
  Settle();
  StopAll(1);
  Reaped();
  core_.front_end().SetReaders({.front_end_has_all = false, .has_viewers = true});
  Close(1);
  Pass(milliseconds(1'900));
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);
  Pass(milliseconds(100));
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

// --- Detached, with a majority of the nodes ---

class MajorityOfNodesTest : public AgentCoreTest {
 protected:
  MajorityOfNodesTest() { prepare_.mutable_job()->set_detachable(true); }

  // Makes the ranks run, the front end leave, and a majority of the nodes confirm the rendezvous.
  void Detach() {
    Start();
    Receive(1, [](pb::RendezvousMessage& message) {
      for (uint32_t node = 0; node < 3; ++node) {
        pb::Peer& peer = *message.mutable_peers()->add_peers();
        peer.set_node_index(node);
        peer.set_endpoint("10.0.0." + std::to_string(node + 1) + ":7");
      }
    });
    core_.OnDetach("/run/socket", now_, boot_now_);
    Settle();
    Answer();
    Pass(milliseconds(1'000));
    actions_.clear();
  }
  // Simulates the rendezvous' answer to a heartbeat, sent while it has a majority.
  void Answer() {
    core_.majority().OnMajority(boot_now_, std::chrono::microseconds(0), boot_now_);
    Receive(1, [](pb::RendezvousMessage& message) { message.mutable_heartbeat(); });
  }
  void PassSeconds(int seconds) {
    for (int i = 0; i < seconds; ++i) Pass(milliseconds(1'000));
  }
};

TEST_F(MajorityOfNodesTest, ReportsMajorityLeaseToSupervisor) {
  Detach();
  EXPECT_EQ(core_.Alive(boot_now_).majority_lease_left_ms(), 11'000);
  EXPECT_FALSE(core_.Alive(boot_now_).has_lease_left_ms());
  for (int second = 0; second < 60; ++second) {
    Answer();
    Pass(milliseconds(1'000));
  }
  EXPECT_EQ(core_.workers().phase(), Phase::kWorking);
}

// The lease is reported because the loop may wait for a disk from now on; the supervisor then ends
// the ranks.
TEST_F(MajorityOfNodesTest, ReportsMajorityLeaseFromDetachOn) {
  Start();
  EXPECT_FALSE(core_.Alive(boot_now_).has_majority_lease_left_ms());
  core_.OnDetach("/run/socket", now_, boot_now_);
  Settle();
  EXPECT_EQ(core_.Alive(boot_now_).majority_lease_left_ms(), 12'000);
}

TEST_F(MajorityOfNodesTest, DrainsWithoutMajorityDespiteHeartbeats) {
  Detach();
  for (int second = 0; second < 12; ++second) {
    Receive(1, [](pb::RendezvousMessage& message) { message.mutable_heartbeat(); });
    Pass(milliseconds(1'000));
  }
  EXPECT_EQ(core_.workers().phase(), Phase::kDraining);
  EXPECT_THAT(Logged(), HasSubstr("node2 was cut off from most nodes of the job"));
  EXPECT_EQ(Count<agent_action::LeaveRendezvous>(), 1u);
  EXPECT_TRUE(core_.majority().is_electing());
}

TEST_F(MajorityOfNodesTest, ElectsAfterFenceWhenRendezvousIsLost) {
  Detach();
  core_.membership().OnEnd("it ended", now_);
  Settle();
  EXPECT_THAT(Requests(), ElementsAre(pb::SupervisorRequest::kStop));
  EXPECT_EQ(Record(pb::NodeEvent::kRestarting).restarting().cause().node_index(), 0u);
  Reaped();
  // By then, the lease of this node and the leases of all other nodes have run out.
  const int fence_s = static_cast<int>(MajorityFence(prepare_.job().timeouts()).count() / 1'000);
  PassSeconds(fence_s - 1);
  EXPECT_THAT(Logged(), Not(HasSubstr("elected")));
  pb::Vote vote;
  vote.set_term(1);
  vote.set_attempt(1);
  core_.majority().OnVote(2, vote, now_);
  Settle();
  EXPECT_EQ(Count<agent_action::OpenRendezvous>(), 0u);
  PassSeconds(3);
  ASSERT_EQ(Count<agent_action::OpenRendezvous>(), 1u);
  core_.majority().OnRendezvousOpened(std::vector<std::string>{"10.0.0.2:99"});
  Settle();
  EXPECT_EQ(Count<agent_action::AnswerVote>(), 1u);
  EXPECT_TRUE(core_.membership().is_host());
  EXPECT_TRUE(All<agent_action::JoinRendezvous>().back().in_process);
}

TEST_F(MajorityOfNodesTest, ElectedRendezvousStartsRanksOnceLeaseIsHeld) {
  Detach();
  core_.membership().OnEnd("it ended", now_);
  Settle();
  Reaped();
  PassSeconds(static_cast<int>(MajorityFence(prepare_.job().timeouts()).count() / 1'000) + 1);
  pb::Vote vote;
  vote.set_term(1);
  core_.majority().OnVote(2, vote, now_);
  Settle();
  core_.majority().OnRendezvousOpened(std::vector<std::string>{"10.0.0.2:99"});
  Settle();
  actions_.clear();
  Assign(2);
  Pass(milliseconds(1'000));
  EXPECT_EQ(Count<agent_action::PlanWorkers>(), 0u);
  Answer();
  Pass(milliseconds(1'000));
  EXPECT_EQ(Count<agent_action::PlanWorkers>(), 1u);
}

TEST_F(MajorityOfNodesTest, HoldsAssignmentWhileLeaseIsOver) {
  Detach();
  Receive(1, [](pb::RendezvousMessage& message) { message.mutable_drain(); });
  Reaped();
  actions_.clear();
  now_ += milliseconds(30'000);  // time in which the agent could not run
  boot_now_ += milliseconds(30'000);
  Assign(2);
  core_.OnTick(now_, boot_now_, milliseconds(30'000));
  Settle();
  EXPECT_EQ(Count<agent_action::PlanWorkers>(), 0u);
  Answer();
  Pass(milliseconds(1'000));
  EXPECT_EQ(Count<agent_action::PlanWorkers>(), 1u);
}

TEST_F(MajorityOfNodesTest, StopsOnLostRendezvousWithoutRestarts) {
  prepare_.mutable_job()->mutable_policy()->set_max_restarts(0);
  Start();
  core_.OnDetach("/run/socket", now_, boot_now_);
  Settle();
  core_.membership().OnEnd("it ended", now_);
  Settle();
  EXPECT_EQ(core_.workers().phase(), Phase::kStopping);
  EXPECT_EQ(core_.teardown().outcome().exit_code(), ToInt(ExitCode::kUnavailable));
}

// --- The supervisor has ended ---

TEST_F(AgentCoreTest, UnpreparedAgentQuitsWithoutSupervisor) {
  core_.OnSupervisorGone(now_);
  Settle();
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

TEST_F(AgentCoreTest, SweepsOrphansWhenSupervisorIsGone) {
  Start();
  core_.OnSupervisorGone(now_);
  Settle();
  EXPECT_EQ(Sent(pb::AgentMessage::kStop).stop().cause().message(),
            "node2 was lost: its supervisor process was killed");
  ASSERT_EQ(Count<agent_action::SweepOrphans>(), 1u);
  EXPECT_THAT(All<agent_action::SweepOrphans>()[0].groups, ElementsAre(100, 101));
  EXPECT_EQ(core_.workers().phase(), Phase::kTornDown);
  EXPECT_EQ(Sent(pb::AgentMessage::kTornDown).attempt(), 1u);
  EXPECT_THAT(Requests(), IsEmpty());
  core_.OnSupervisorGone(now_);
  EXPECT_THAT(core_.Take(now_), IsEmpty());
  Close(1);
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

TEST_F(AgentCoreTest, HostLeavesRendezvousWhenSupervisorIsGone) {
  prepare_.set_node_index(0);
  Prepare();
  core_.membership().OnRun({}, now_);
  Settle();
  actions_.clear();
  core_.OnSupervisorGone(now_);
  Settle();
  EXPECT_EQ(Count<agent_action::LeaveRendezvous>(), 1u);
  EXPECT_FALSE(core_.membership().is_host());
  EXPECT_EQ(Count<agent_action::SendToRendezvous>(), 0u);
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

TEST_F(AgentCoreTest, HostLeavesRendezvousWhenFrontEndIsGone) {
  prepare_.set_node_index(0);
  Prepare();
  core_.membership().OnRun({}, now_);
  Settle();
  actions_.clear();
  FrontEndGone();
  EXPECT_EQ(Count<agent_action::LeaveRendezvous>(), 1u);
  EXPECT_FALSE(core_.membership().is_host());
  EXPECT_EQ(Count<agent_action::SendToRendezvous>(), 0u);
  Reaped();
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

TEST_F(AgentCoreTest, EmptyNodeWaitsForFrontEndUntilLeaseEnds) {
  Start();
  StopAll(1);
  Reaped();
  Close(1);
  Pass(milliseconds(29'000));
  EXPECT_EQ(Count<agent_action::Quit>(), 0u);
  Pass(milliseconds(1'000));
  EXPECT_EQ(Count<agent_action::Quit>(), 1u);
}

TEST_F(AgentCoreTest, ForwardsSignalsToSupervisor) {
  Start();
  core_.workers().OnSignal(SIGUSR1);
  Settle();
  EXPECT_EQ(All<agent_action::SendToSupervisor>().at(0).request.signal().signal(), SIGUSR1);
}

TEST_F(AgentCoreTest, ShowsStoppedRanksAndNoticesOfRendezvous) {
  Start();
  Supervisor([](pb::SupervisorEvent& event) {
    event.mutable_stopped()->set_local_rank(0);
    event.mutable_stopped()->set_signal(SIGSTOP);
  });
  EXPECT_THAT(Record(pb::NodeEvent::kNotice).notice().message(),
              HasSubstr("rank 2 (node2, pid 100) was stopped by SIGSTOP; the others wait for it "
                        "until it is continued"));
  MayBeLost(1);
  actions_.clear();
  Supervisor([](pb::SupervisorEvent& event) {
    event.mutable_stopped()->set_local_rank(1);
    event.mutable_stopped()->set_signal(SIGSTOP);
  });
  EXPECT_THAT(Record(pb::NodeEvent::kNotice).notice().message(),
              HasSubstr("the others wait for it for some time, and then go on without it"));
  actions_.clear();
  Receive(1,
          [](pb::RendezvousMessage& message) { message.mutable_notice()->set_message("a word"); });
  EXPECT_EQ(Record(pb::NodeEvent::kNotice).notice().message(), "a word");
}

}  // namespace
}  // namespace dslaunch::agent_core_test
