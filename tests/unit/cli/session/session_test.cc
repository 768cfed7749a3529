// Tests whole sessions with scripted agents.
#include "cli/session/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"
#include "tests/support/scripted_nodes.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::session_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Returns the rank of `node`, if each member has one rank; nullopt if the node is not a member.
std::optional<uint32_t> RankOf(uint32_t node, const std::vector<uint32_t>& members) {
  const auto found = std::ranges::find(members, node);
  if (found == members.end()) return std::nullopt;
  return static_cast<uint32_t>(found - members.begin());
}

void Start(AgentScript& agent, uint64_t attempt, const std::vector<uint32_t>& members) {
  pb::NodeEvent event;
  pb::Started& started = *event.mutable_started();
  started.set_attempt(attempt);
  started.set_world_size(static_cast<uint32_t>(members.size()));
  started.set_restart_count(static_cast<uint32_t>(attempt - 1));
  *started.mutable_members() = ToNodeSet(members);
  if (const std::optional<uint32_t> rank = RankOf(agent.node_index(), members)) {
    started.set_first_rank(*rank);
    started.add_pids(4'711);
  }
  agent.Send(event);
}

pb::NodeEvent WorkerEnded(uint64_t attempt, uint32_t rank, int exit_code) {
  pb::NodeEvent event;
  event.mutable_worker_ended()->set_attempt(attempt);
  event.mutable_worker_ended()->set_rank(rank);
  event.mutable_worker_ended()->set_exit_code(exit_code);
  return event;
}

pb::NodeEvent Restarting(uint64_t attempt, const pb::Cause& cause, const std::string& reason) {
  pb::NodeEvent event;
  event.mutable_restarting()->set_attempt(attempt);
  *event.mutable_restarting()->mutable_cause() = cause;
  event.mutable_restarting()->set_reason(reason);
  return event;
}

pb::NodeEvent Outcome(uint64_t attempt) {
  pb::NodeEvent event;
  event.mutable_outcome()->set_attempt(attempt);
  return event;
}

pb::NodeEvent Step(int step, int total_steps) {
  pb::NodeEvent event;
  event.mutable_status()->set_line(R"({"event":"step","step":)" + std::to_string(step) +
                                   R"(,"total_steps":)" + std::to_string(total_steps) + "}");
  return event;
}

pb::NodeEvent Notice(const std::string& text) {
  pb::NodeEvent event;
  event.mutable_notice()->set_message(text);
  return event;
}

pb::NodeEvent Done(const std::vector<uint32_t>& members) {
  pb::NodeEvent event;
  event.mutable_done()->set_completed(true);
  event.mutable_done()->set_teardown_complete(true);
  *event.mutable_done()->mutable_members() = ToNodeSet(members);
  return event;
}

void EndWell(AgentScript& agent, uint64_t attempt, const std::vector<uint32_t>& members) {
  if (const std::optional<uint32_t> rank = RankOf(agent.node_index(), members))
    agent.Send(WorkerEnded(attempt, *rank, 0));
  agent.Send(Outcome(attempt));
  agent.Send(Done(members));
}

UniqueFd OpenToAppend(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    options_.job.set_job_id("job1");
    options_.job.mutable_timeouts()->set_grace_ms(200);
    options_.job.mutable_timeouts()->set_teardown_ms(200);
    options_.job.mutable_timeouts()->set_heartbeat_ms(100);
    options_.job.mutable_timeouts()->set_dead_ms(2'000);
    options_.retry_wait = milliseconds(50);
    options_.connect_timeout = milliseconds(5'000);
    options_.job_folder = folder_ / "events";
    options_.json = true;
  }

  void PlanFor(size_t nodes, int min_nodes, uint32_t max_restarts) {
    LaunchPlan& plan = options_.plan;
    for (size_t i = 0; i < nodes; ++i) {
      Host& node = plan.nodes.emplace_back();
      node.name = "node" + std::to_string(i);
      node.slots = 1;
    }
    plan.min_nodes = min_nodes;
    plan.max_nodes = static_cast<int>(nodes);
    plan.ranks = NumberRanksOf(plan.nodes);
    options_.job.mutable_policy()->set_max_restarts(max_restarts);
  }

  int Run() { return Run(transport_); }
  int Run(const std::shared_ptr<Transport>& transport) {
    return Run(transport, OpenToAppend(folder_ / "out"));
  }
  int Run(const std::shared_ptr<Transport>& transport, UniqueFd out) {
    const UniqueFd err = OpenToAppend(folder_ / "err");
    Terminal terminal(out.get(), err.get(), nullptr);
    LaunchSession session(options_, transport, terminal);
    return session.Run();
  }

  std::string Shown() const { return Content(folder_ / "err"); }

  // Returns the last line of stdout as JSON.
  nlohmann::json Closing() const {
    std::string out = Content(folder_ / "out");
    EXPECT_FALSE(out.empty());
    if (!out.empty()) out.pop_back();
    return nlohmann::json::parse(out.substr(out.find_last_of('\n') + 1));
  }

  std::vector<std::string> EventNames() const {
    std::vector<std::string> names;
    std::istringstream lines(Content(folder_ / "events/events.jsonl"));
    for (std::string line; std::getline(lines, line);)
      names.push_back(nlohmann::json::parse(line).at("event"));
    return names;
  }

  TempDir folder_;
  SessionOptions options_;
  std::shared_ptr<ScriptedTransport> transport_ = std::make_shared<ScriptedTransport>();
};

TEST_F(SessionTest, ReportsSuccess) {
  PlanFor(2, 2, 0);
  for (const char* name : {"node0", "node1"}) {
    transport_->Add(name, {[](AgentScript& agent) {
                      Start(agent, 1, {0, 1});
                      EndWell(agent, 1, {0, 1});
                    }});
  }
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_EQ(Closing().at("exit_code"), 0);
  EXPECT_TRUE(Closing().at("cause").is_null());
  EXPECT_THAT(Shown(), HasSubstr("2 ranks on 2 nodes succeeded"));
  const std::vector<std::string> events = EventNames();
  EXPECT_EQ(events.front(), "plan");
  EXPECT_EQ(events.back(), "end");
  EXPECT_EQ(std::ranges::count(events, "node_connected"), 2);
  EXPECT_EQ(std::ranges::count(events, "started"), 2);
}

// Runs a job in which a rank is stopped for a while, at each log level.
TEST_F(SessionTest, PrintsLinesOfChosenLogLevel) {
  PlanFor(1, 1, 0);
  const ScriptedNode::Script script = [](AgentScript& agent) {
    Start(agent, 1, {0});
    agent.Send(Step(10, 10));
    agent.Send(Notice("rank 0 was stopped"));
    EndWell(agent, 1, {0});
  };
  transport_->Add("node0", {script, script, script, script});
  const struct {
    LogLevel level;
    std::vector<std::string> says, says_not;
  } cases[] = {
      {LogLevel::kError, {}, {"dslaunch", "step", "rank 0"}},
      {LogLevel::kWarning, {"rank 0 was stopped"}, {"1 slot", "step", "succeeded"}},
      {LogLevel::kInfo, {"rank 0 was stopped", "1 slot", "step 10/10", "succeeded"}, {"reached"}},
      {LogLevel::kDebug,
       {"node0 is reached after", "node0 is prepared", "CPU, as no node has", "succeeded",
        "torn down, no processes left", "rank 0 was stopped"},
       {}},
  };
  for (const auto& c : cases) {
    std::filesystem::remove(folder_ / "err");
    options_.log_level = c.level;
    EXPECT_EQ(Run(), 0) << Shown();
    for (const std::string& text : c.says) EXPECT_THAT(Shown(), HasSubstr(text));
    for (const std::string& text : c.says_not) EXPECT_THAT(Shown(), Not(HasSubstr(text)));
    EXPECT_EQ(Closing().at("exit_code"), 0);  // the last line is printed because of --json
  }
}

TEST_F(SessionTest, PrintsFailureAtErrorLevel) {
  PlanFor(1, 1, 0);
  options_.log_level = LogLevel::kError;
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    agent.BeSilent();
                  }});
  EXPECT_EQ(Run(), 69);
  EXPECT_THAT(Shown(), testing::StartsWith("dslaunch: node0 was lost: no heartbeat from it"));
  EXPECT_THAT(Shown(), testing::EndsWith("  exit code 69\n"));
}

// A pager that does not read must delay only the output, not other reports.
TEST_F(SessionTest, ReportsLostNodeWhileOutputIsNotRead) {
  PlanFor(1, 1, 0);
  options_.shown = {{true, {}}, {}, {}};
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    std::string lines;
                    for (int i = 0; i < 64; ++i) lines += std::string(1023, 'x') + "\n";
                    pb::NodeEvent output;
                    output.mutable_log()->set_data(lines);
                    for (int i = 0; i < 6; ++i) agent.Send(output);
                    agent.LiveFor(milliseconds(300));
                    agent.BreakOff();
                  }});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reader(ends[0]);
  std::atomic<bool> over = false;
  std::thread pager([&] {
    const Deadline deadline = Deadline::After(milliseconds(5'000));
    while (std::ranges::count(EventNames(), "node_lost") == 0 && !deadline.Expired())
      usleep(20'000);
    EXPECT_FALSE(deadline.Expired()) << "it waited for the reader";
    while (!over) {
      char some[65536];
      if (::read(reader.get(), some, sizeof some) < 0) usleep(1'000);
    }
  });
  EXPECT_EQ(Run(transport_, UniqueFd(ends[1])), 69);
  over = true;
  pager.join();
  EXPECT_THAT(Shown(), HasSubstr("node0 was lost: the connection to it broke"));
}

// The job has succeeded and its node has disconnected, while a pager that does not read blocks the
// output before the node's last report.
TEST_F(SessionTest, KeepsSuccessOfNodeGoneBeforeOutputIsRead) {
  PlanFor(1, 1, 0);
  options_.shown = {{true, {}}, {}, {}};
  static std::atomic<int> connection = -1;
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    std::string lines;
                    for (int i = 0; i < 64; ++i) lines += std::string(1023, 'x') + "\n";
                    pb::NodeEvent output;
                    output.mutable_log()->set_data(lines);
                    for (int i = 0; i < 6; ++i) agent.Send(output);
                    EndWell(agent, 1, {0});
                    connection = agent.connection();
                  }});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reader(ends[0]);
  std::atomic<bool> over = false;
  std::thread pager([&] {
    const Deadline deadline = Deadline::After(milliseconds(10'000));
    while (connection < 0 && !deadline.Expired()) usleep(20'000);
    usleep(300'000);  // the last message of the node has arrived afterwards
    ::shutdown(connection, SHUT_RDWR);
    usleep(1'200'000);  // time of two renewals of the lease
    while (!over) {
      char some[65536];
      if (::read(reader.get(), some, sizeof some) < 0) usleep(1'000);
    }
  });
  EXPECT_EQ(Run(transport_, UniqueFd(ends[1])), 0) << Shown();
  over = true;
  pager.join();
  EXPECT_THAT(Shown(), Not(HasSubstr("lost")));
}

// --- Nodes that violate the protocol ---

class HostileNodeTest : public SessionTest {
 protected:
  // Runs two nodes with a rank each. node0 follows the protocol; node1 follows `script`. Returns
  // the exit code.
  int RunWith(const ScriptedNode::Script& script) {
    PlanFor(2, 2, 0);
    transport_->Add("node0", {[](AgentScript& agent) {
                      Start(agent, 1, {0, 1});
                      EndWell(agent, 1, {0, 1});
                    }});
    transport_->Add("node1", {script});
    return Run();
  }
  uintmax_t EventBytes() const {
    return std::filesystem::file_size(folder_ / "events/events.jsonl");
  }
};

pb::NodeEvent FailedOutcome(int exit_code) {
  pb::NodeEvent event = Outcome(1);
  pb::Cause& cause = *event.mutable_outcome()->mutable_cause();
  cause = MakeCause(pb::Cause::WORKER_EXIT, 1, ExitCode::kInternal, "");
  cause.set_rank(1);
  cause.set_exit_code(exit_code);
  return event;
}

TEST_F(HostileNodeTest, RejectsFailureWithInvalidExitCode) {
  for (const int exit_code : {0, 256, -1}) {
    transport_ = std::make_shared<ScriptedTransport>();
    options_.plan = {};
    EXPECT_EQ(RunWith([exit_code](AgentScript& agent) {
                Start(agent, 1, {0, 1});
                agent.Send(FailedOutcome(exit_code));
                pb::NodeEvent done = Done({0, 1});
                *done.mutable_done()->mutable_cause() = FailedOutcome(exit_code).outcome().cause();
                agent.Send(done);
              }),
              69)
        << Shown();
    EXPECT_THAT(Shown(), HasSubstr("node1 was lost: its agent sent exit code of a failure = " +
                                   std::to_string(exit_code) + ", which is not from 1 to 255"));
  }
}

TEST_F(HostileNodeTest, FailsIfNodeReportsTooFewSuccesses) {
  EXPECT_EQ(RunWith([](AgentScript& agent) {
              Start(agent, 1, {0, 1});
              agent.Send(Outcome(1));
              agent.Send(Done({0, 1}));
            }),
            70)
      << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1 reported the success of 0 of its 1 ranks"));
}

TEST_F(HostileNodeTest, LimitsNoticesOnDiskAndTerminal) {
  EXPECT_EQ(RunWith([](AgentScript& agent) {
              Start(agent, 1, {0, 1});
              for (int i = 0; i < 600; ++i)
                agent.Send(Notice(std::to_string(i) + std::string(100'000, 'x')));
              EndWell(agent, 1, {0, 1});
            }),
            0)
      << Shown().substr(0, 10'000);
  EXPECT_THAT(Shown(), HasSubstr("this node sends too many messages; some are left out"));
  EXPECT_LT(Shown().size(), size_t{4} << 20);
  EXPECT_LT(EventBytes(), size_t{4} << 20);
}

TEST_F(HostileNodeTest, FloodOfEventsLosesNode) {
  EXPECT_EQ(RunWith([](AgentScript& agent) {
              Start(agent, 1, {0, 1});
              for (int i = 0; i < 10'000; ++i) {
                pb::NodeEvent event = WorkerEnded(1, 1, 1);
                event.mutable_worker_ended()->set_last_lines(std::string(50'000, 'x'));
                agent.Send(event);
              }
            }),
            69)
      << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1 was lost: its agent sent more events than any job has"));
  EXPECT_LT(EventBytes(), size_t{4} << 20);
}

TEST_F(HostileNodeTest, OversizedEventLosesNode) {
  EXPECT_EQ(RunWith([](AgentScript& agent) {
              Start(agent, 1, {0, 1});
              agent.Send(Notice(std::string(8 << 20, 'x')));
            }),
            69)
      << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1 was lost: its agent sent an event that is too large"));
}

TEST_F(HostileNodeTest, InvalidPrepareReplyFailsStart) {
  const auto run = [&](const pb::PrepareReply& reply) {
    transport_ = std::make_shared<ScriptedTransport>();
    options_.plan = {};
    PlanFor(2, 2, 0);
    for (const char* name : {"node0", "node1"})
      transport_->Add(name, {[](AgentScript&) { ADD_FAILURE() << "it was run"; }});
    transport_->SetPrepareReply("node1", reply);
    return Run();
  };
  pb::PrepareReply reply;
  EXPECT_EQ(run(reply), 69) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1: its agent sent an empty answer"));
  reply.mutable_failure()->set_exit_code(0);
  EXPECT_EQ(run(reply), 69) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1: its agent sent exit code of a failure = 0"));
  reply.mutable_info()->set_job_dir("/jobs");
  reply.mutable_info()->add_rendezvous_endpoints("nowhere");
  EXPECT_EQ(run(reply), 69) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1: its agent sent an endpoint that is not ADDRESS:PORT"));
}

TEST_F(SessionTest, PrintsFailedStartAtErrorLevel) {
  PlanFor(1, 1, 0);
  options_.log_level = LogLevel::kError;
  transport_->Add("node0", {});
  EXPECT_EQ(Run(), 69);
  EXPECT_EQ(Shown(), "dslaunch: node 'node0': no route to host\n");
}

TEST_F(SessionTest, RequestsOnlyShownOutput) {
  PlanFor(1, 1, 0);
  const ScriptedNode::Script script = [](AgentScript& agent) {
    Start(agent, 1, {0});
    EndWell(agent, 1, {0});
  };
  transport_->Add("node0", {script, script});
  options_.shown = {{true, {}}, std::vector{1, 3}, {}};
  EXPECT_EQ(Run(), 0) << Shown();
  const pb::RunRequest run = transport_->node("node0").ran().at(0);
  EXPECT_TRUE(run.shown().all());
  EXPECT_THAT(run.shown().local_ranks(), ElementsAre(1, 3));

  options_.shown = {{false, {0}}, std::vector<int>(), {}};
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_EQ(transport_->node("node0").ran().at(1).shown().ByteSizeLong(), 0u);
}

TEST_F(SessionTest, StartsWithoutMissingNodeIfEnoughAreLeft) {
  PlanFor(3, 2, 3);
  transport_->Add("node0", {});
  for (const char* name : {"node1", "node2"}) {
    transport_->Add(name, {[](AgentScript& agent) {
                      Start(agent, 1, {1, 2});
                      EndWell(agent, 1, {1, 2});
                    }});
  }
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node 'node0': no route to host; starting without node0"));
  EXPECT_THAT(Shown(), HasSubstr("2 ranks on 2 nodes succeeded"));
  const pb::PrepareRequest request = transport_->node("node2").prepared().at(0);
  EXPECT_THAT(request.absent_nodes(), ElementsAre(0));
  EXPECT_EQ(request.rendezvous_node(), 1u);
  EXPECT_EQ(Closing().at("nodes").at(0).at("state"), "absent");
}

TEST_F(SessionTest, StartsNothingWithTooFewNodes) {
  PlanFor(3, 2, 3);
  transport_->Add("node0", {});
  transport_->Add("node1", {[](AgentScript&) { ADD_FAILURE() << "it was run"; }});
  transport_->Add("node2", {});
  EXPECT_EQ(Run(), 69);
  EXPECT_THAT(Shown(), HasSubstr("node0, node2 (2 nodes): no route to host"));
  EXPECT_THAT(Shown(), HasSubstr("nothing was started (2 of 3 nodes failed)"));
  EXPECT_EQ(Closing().at("cause").at("kind"), "start_failed");
  EXPECT_THAT(transport_->node("node1").prepared(), IsEmpty());
}

TEST_F(SessionTest, JobOutlivesLostNode) {
  PlanFor(3, 2, 3);
  static Signpost* lost = new Signpost;
  for (const char* name : {"node0", "node1"}) {
    transport_->Add(
        name, {[](AgentScript& agent) {
          Start(agent, 1, {0, 1, 2});
          EXPECT_TRUE(agent.LiveUntil(*lost));
          agent.Send(Restarting(
              1, MakeCause(pb::Cause::NODE_LOST, 2, ExitCode::kUnavailable, "node2 was lost: x"),
              "restart 1 of 3"));
          Start(agent, 2, {0, 1});
          EndWell(agent, 2, {0, 1});
        }});
  }
  transport_->Add("node2", {[](AgentScript& agent) {
                    Start(agent, 1, {0, 1, 2});
                    lost->Set();
                  }});
  EXPECT_EQ(Run(), 0) << Shown();
  const std::string line = "attempt 1 ended: node2 was lost: x; restart 1 of 3\n";
  EXPECT_THAT(Shown(), HasSubstr(line));
  EXPECT_EQ(Shown().find(line), Shown().rfind(line));
  EXPECT_THAT(Shown(), HasSubstr("node2 was lost: the connection to it broke"));
  EXPECT_THAT(Shown(), HasSubstr("2 ranks on 2 nodes succeeded"));
  EXPECT_EQ(Closing().at("attempts"), 2);
  EXPECT_EQ(Closing().at("restarts"), 1);
  EXPECT_EQ(Closing().at("nodes").at(2).at("state"), "lost");
}

TEST_F(SessionTest, PreparesAndRunsLateNode) {
  PlanFor(2, 1, 3);
  static Signpost* came = new Signpost;
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    EXPECT_TRUE(agent.LiveUntil(*came));
                    agent.Send(Restarting(1, {}, "node1 joined"));
                    Start(agent, 2, {0, 1});
                    EndWell(agent, 2, {0, 1});
                  }});
  transport_->Add("node1", {nullptr, nullptr, [](AgentScript& agent) {
                              came->Set();
                              Start(agent, 2, {0, 1});
                              EndWell(agent, 2, {0, 1});
                            }});
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("starting without node1"));
  EXPECT_THAT(Shown(), HasSubstr("dslaunch: node1 is connected now\n"));
  EXPECT_THAT(Shown(), HasSubstr("attempt 1 ended: node1 joined\n"));
  EXPECT_THAT(Shown(), HasSubstr("2 ranks on 2 nodes succeeded"));
  EXPECT_EQ(transport_->node("node1").prepared().size(), 1u);
}

TEST_F(SessionTest, LateNodeWithoutRanksIsNotLost) {
  PlanFor(2, 1, 3);
  static Signpost* came = new Signpost;
  static Signpost* over = new Signpost;
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    EXPECT_TRUE(agent.LiveUntil(*came));
                    EndWell(agent, 1, {0});
                    over->Set();
                  }});
  transport_->Add("node1", {nullptr, [](AgentScript& agent) {
                              came->Set();
                              EXPECT_TRUE(agent.LiveUntil(*over));
                              agent.LiveFor(milliseconds(200));
                              EndWell(agent, 1, {0});
                            }});
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_THAT(Shown(), Not(HasSubstr("lost")));
  EXPECT_EQ(Closing().at("nodes").at(1).at("state"), "done");
}

TEST_F(SessionTest, ReconnectsLostNode) {
  PlanFor(2, 1, 3);
  static Signpost* back = new Signpost;
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0, 1});
                    EXPECT_TRUE(agent.LiveUntil(*back));
                    Start(agent, 2, {0, 1});
                    EndWell(agent, 2, {0, 1});
                  }});
  transport_->Add("node1", {[](AgentScript& agent) {
                              Start(agent, 1, {0, 1});
                            },
                            nullptr,
                            [](AgentScript& agent) {
                              back->Set();
                              Start(agent, 2, {0, 1});
                              EndWell(agent, 2, {0, 1});
                            }});
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("dslaunch: node1 is connected again\n"));
  EXPECT_THAT(Shown(), HasSubstr("  node1 was lost: the connection to it broke\n"));
}

// Tests three nodes. The first hosts the rendezvous and breaks its connections; the others notice
// this after `notice`.
class LostHostTest : public SessionTest {
 protected:
  int RunWithout(const std::vector<ScriptedNode::Script>& host, milliseconds notice) {
    PlanFor(3, 1, 3);
    transport_->Add("node0", host);
    for (const char* name : {"node1", "node2"}) {
      transport_->Add(
          name, {[this, notice](AgentScript& agent) {
            agent.LiveFor(notice);
            pb::NodeEvent lost;
            lost.mutable_rendezvous_lost()->set_attempt(1);
            *lost.mutable_rendezvous_lost()->mutable_cause() =
                MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "node0 was lost: gone");
            agent.Send(lost);
            const Deadline deadline = Deadline::After(milliseconds(20'000));
            while (transport_->node("node2").failed_over().empty() && !deadline.Expired())
              agent.LiveFor(milliseconds(20));
            failed_over_at_ = Clock::now();
            agent.LiveFor(milliseconds(300));
            Start(agent, 2, {1, 2});
            EndWell(agent, 2, {1, 2});
          }});
    }
    return Run();
  }

  std::atomic<Clock::time_point> failed_over_at_;
};

void StartAndBreakOff(AgentScript& agent) { Start(agent, 1, {0, 1, 2}); }

TEST_F(LostHostTest, LostHostReturnsAfterFailover) {
  const auto comes_back = [](AgentScript& agent) { agent.LiveFor(milliseconds(5'000)); };
  EXPECT_EQ(RunWithout({StartAndBreakOff, comes_back}, milliseconds(600)), 0) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("node1 hosts the rendezvous from now on"));
  const std::vector<pb::PrepareRequest> prepared = transport_->node("node0").prepared();
  ASSERT_EQ(prepared.size(), 2u);
  EXPECT_EQ(prepared[1].rendezvous_node(), 1u);
}

TEST_F(LostHostTest, WaitsForLeaseIfSupervisorMayLive) {
  options_.job.mutable_timeouts()->set_lease_ms(1'500);
  transport_->HideEndsOf("node0");
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(RunWithout({StartAndBreakOff}, milliseconds(0)), 0) << Shown();
  // The failover waits for the lease and the other limits of the node.
  EXPECT_GE(failed_over_at_.load() - start, milliseconds(3'800));
}

TEST_F(SessionTest, NamesSilentNode) {
  PlanFor(1, 1, 0);
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    agent.BeSilent();
                  }});
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(Run(), 69) << Shown();
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(1'900));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(Shown(), HasSubstr("node0 was lost: no heartbeat from it for 2 s"));
  EXPECT_EQ(Closing().at("cause").at("kind"), "node_lost");
}

TEST_F(SessionTest, WaitsForNodeThatSendsHeartbeats) {
  PlanFor(1, 1, 0);
  transport_->Add("node0", {[](AgentScript& agent) {
                    Start(agent, 1, {0});
                    agent.LiveFor(milliseconds(3'000));
                    EndWell(agent, 1, {0});
                  }});
  EXPECT_EQ(Run(), 0) << Shown();
}

TEST_F(SessionTest, LeavesSilentNodeToOtherNodes) {
  PlanFor(2, 1, 3);
  transport_->Add(
      "node0", {[](AgentScript& agent) {
        Start(agent, 1, {0, 1});
        agent.LiveFor(milliseconds(5'000));
        agent.Send(Restarting(
            1, MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "node1 was lost: silent"),
            "restart 1 of 3"));
        Start(agent, 2, {0});
        EndWell(agent, 2, {0});
      }});
  transport_->Add("node1", {[](AgentScript& agent) { agent.BeSilent(); }});
  EXPECT_EQ(Run(), 0) << Shown();
  EXPECT_THAT(Shown(), HasSubstr("no heartbeat from node1 for 2 s; the other nodes decide"));
  EXPECT_THAT(Shown(), HasSubstr("attempt 1 ended: node1 was lost: silent"));
  EXPECT_THAT(Shown(), Not(HasSubstr("sends heartbeats again")));
}

// Answers connection attempts differently by the name of the node.
class RefusingTransport : public Transport {
 public:
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override {
    const bool silent = target.name == "node1";
    if (silent) std::this_thread::sleep_until(deadline.when());
    if (target.name == "node3") std::this_thread::sleep_for(milliseconds(300));
    return Error{silent ? ExitCode::kUnavailable : ExitCode::kNoPermission,
                 "node '" + target.name + "': " + (silent ? "silent" : "refused")};
  }
};

TEST_F(SessionTest, FailsStartSoonAndNamesQuickFailures) {
  PlanFor(4, 4, 0);
  const auto transport = std::make_shared<RefusingTransport>();
  options_.connect_timeout = milliseconds(10'000);
  const auto start = Clock::now();
  EXPECT_EQ(Run(transport), 77) << Shown();
  EXPECT_LT(Clock::now() - start, milliseconds(5'000));
  EXPECT_THAT(Shown(), HasSubstr("node0, node2, node3 (3 nodes): refused"));
  EXPECT_THAT(Shown(), HasSubstr("no answer so far from: node1 (1 node)"));
  EXPECT_THAT(Shown(), HasSubstr("nothing was started (3 of 4 nodes failed)"));
}

// One node is never reached, and one breaks its connection and is being retried when the job ends.
// Their threads must keep everything alive that they still use, and release it. LeakSanitizer
// reports leaks of memory.
TEST_F(SessionTest, RepeatedSessionsReleaseAllResources) {
  PlanFor(3, 1, 3);
  for (int round = 0; round < 2; ++round) {
    transport_ = std::make_shared<ScriptedTransport>();
    const std::weak_ptr<Transport> watched = transport_;
    transport_->Add("node0", {[](AgentScript& agent) {
                      Start(agent, 1, {0, 1});
                      agent.LiveFor(milliseconds(300));
                      Start(agent, 2, {0});
                      EndWell(agent, 2, {0});
                    }});
    transport_->Add("node1", {[](AgentScript& agent) {
                      Start(agent, 1, {0, 1});
                      agent.BreakOff();
                    }});
    transport_->Add("node2", {});
    EXPECT_EQ(Run(), 0) << Shown();
    EXPECT_EQ(Closing().at("nodes").at(1).at("state"), "lost");
    EXPECT_EQ(Closing().at("nodes").at(2).at("state"), "absent");
    transport_.reset();
    const Deadline deadline = Deadline::After(milliseconds(10'000));
    while (!watched.expired() && !deadline.Expired()) usleep(10'000);
    EXPECT_TRUE(watched.expired());
  }
}

}  // namespace
}  // namespace dslaunch::session_test
