// Tests a node's agent between a scripted supervisor, a scripted rendezvous and a scripted front
// end.
#include "agent/node/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <thread>

#include "net/acceptor.h"
#include "net/certificate_authority.h"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/wire/channel.h"
#include "proto/wire/node_set.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::node_agent_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kWait(20'000);

// Receives the messages of one agent and sends messages that the test supplies.
class ScriptedRendezvous final : public pb::Rendezvous::CallbackService {
 public:
  explicit ScriptedRendezvous(const pb::Credentials& credentials) {
    grpc::ServerBuilder builder;
    SetCommonServerOptions(builder);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    AcceptorOptions options;
    options.job_id = "b0b";
    options.num_nodes = 2;
    options.loopback_only = true;
    acceptor_ = *Acceptor::Start(
        options, credentials,
        [this](const AcceptedNode&, UniqueFd plain) { ServeFd(*server_, std::move(plain)); },
        [](const std::string& line) { ADD_FAILURE() << line; });
  }
  ~ScriptedRendezvous() override {
    acceptor_.reset();  // must be first, because it calls the server
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(acceptor_->port()); }

  void Send(pb::RendezvousMessage message) {
    const std::lock_guard lock(mutex_);
    if (session_ != nullptr) session_->Write(std::move(message));
  }
  // Returns the next received message; nullopt if there is none. Heartbeats are counted instead of
  // stored.
  std::optional<pb::AgentMessage> Next() {
    const std::lock_guard lock(mutex_);
    if (messages_.empty()) return std::nullopt;
    pb::AgentMessage message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  int beats() {
    const std::lock_guard lock(mutex_);
    return beats_;
  }
  pb::AgentMessage last_beat() {
    const std::lock_guard lock(mutex_);
    return last_beat_;
  }

 private:
  class Session final : public grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage> {
   public:
    explicit Session(ScriptedRendezvous& owner) : owner_(owner) { StartRead(&incoming_); }
    // Requires the owner's mutex.
    void Write(pb::RendezvousMessage message) {
      queue_.push_back(std::move(message));
      if (queue_.size() == 1) StartWrite(&queue_.front());
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      owner_.Take(incoming_);
      StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(owner_.mutex_);
      queue_.pop_front();
      if (ok && !queue_.empty()) StartWrite(&queue_.front());
    }
    void OnDone() override {
      {
        const std::lock_guard lock(owner_.mutex_);
        owner_.session_ = nullptr;
      }
      delete this;
    }

   private:
    ScriptedRendezvous& owner_;
    pb::AgentMessage incoming_;
    std::deque<pb::RendezvousMessage> queue_;
  };

  grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* Attend(
      grpc::CallbackServerContext*) override {
    const std::lock_guard lock(mutex_);
    return session_ = new Session(*this);
  }
  void Take(const pb::AgentMessage& message) {
    const std::lock_guard lock(mutex_);
    if (!message.has_heartbeat()) return messages_.push_back(message);
    ++beats_;
    last_beat_ = message;
    pb::RendezvousMessage echo;
    echo.mutable_heartbeat()->set_sent_us(message.heartbeat().sent_us());
    session_->Write(std::move(echo));
  }

  std::mutex mutex_;
  Session* session_ = nullptr;
  std::deque<pb::AgentMessage> messages_;
  int beats_ = 0;
  pb::AgentMessage last_beat_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
};

// Answers as if it had started the workers, but starts none. Does not answer stops if answers_stop
// is false.
class ScriptedSupervisor {
 public:
  ScriptedSupervisor(asio::io_context& loop, UniqueFd fd)
      : socket_(
            loop, std::move(fd), [this](std::string_view bytes) { OnRequest(bytes); },
            [](const std::string&) {}) {}

  void Exit(uint32_t local_rank, int exit_code, bool stopping = false) {
    pb::SupervisorEvent event;
    event.mutable_exited()->set_local_rank(local_rank);
    event.mutable_exited()->set_exit_code(exit_code);
    event.mutable_exited()->set_stopping(stopping);
    socket_.Send(event);
  }
  void Status(uint32_t local_rank, const std::string& lines) {
    pb::SupervisorEvent event;
    event.mutable_status()->set_local_rank(local_rank);
    event.mutable_status()->set_data(lines);
    socket_.Send(event);
  }
  void Reaped() {
    pb::SupervisorEvent event;
    event.mutable_all_reaped();
    socket_.Send(event);
  }

  std::vector<pb::SpawnWorkers> spawned;
  int stops = 0;
  std::optional<uint32_t> lease_left_ms;  // value of the newest lease report
  bool answers_stop = true;

 private:
  void OnRequest(std::string_view bytes) {
    pb::SupervisorRequest request;
    ASSERT_TRUE(request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    if (request.has_spawn()) {
      for (const pb::WorkerSpec& worker : request.spawn().workers()) {
        std::ofstream(worker.stdout_path()) << "hello of " << spawned.size() << "\n";
        pb::SupervisorEvent event;
        event.mutable_spawned()->set_local_rank(worker.local_rank());
        event.mutable_spawned()->set_pid(next_pid_++);
        socket_.Send(event);
      }
      spawned.push_back(request.spawn());
    }
    if (request.alive().has_lease_left_ms()) lease_left_ms = request.alive().lease_left_ms();
    if (request.has_look()) {
      pb::SupervisorEvent event;
      event.mutable_looked()->set_number(request.look().number());
      pb::ProcessStacks& process = *event.mutable_looked()->mutable_stacks()->add_processes();
      process.set_pid(5);
      process.add_threads()->set_name("main");
      socket_.Send(event);
    }
    if (request.has_stop()) {
      ++stops;
      if (answers_stop) Reaped();
    }
  }

  FramedSocket socket_;
  int next_pid_ = 1'000'000'000;  // pids above the limit, so no process has them
};

class FrontEnd : public EventSink {
 public:
  FrontEnd(asio::io_context& loop, NodeAgent& agent) : loop_(loop), agent_(agent) {}
  void Write(pb::NodeEvent event) override {
    if (!event.has_alive()) events.push_back(std::move(event));
    asio::post(loop_, [this] { agent_.events().OnWritten(true); });
  }
  void Finish() override { finished = true; }

  // Returns the event of this kind after `skip` others of the same kind; nullptr if there is none.
  const pb::NodeEvent* Find(pb::NodeEvent::EventCase kind, int skip = 0) const {
    for (const pb::NodeEvent& event : events) {
      if (event.event_case() == kind && skip-- == 0) return &event;
    }
    return nullptr;
  }

  std::vector<pb::NodeEvent> events;
  bool finished = false;

 private:
  asio::io_context& loop_;
  NodeAgent& agent_;
};

pb::NodeList NodesNamed(const std::vector<std::string>& names) {
  std::vector<pb::Node> nodes;
  for (const std::string& name : names) {
    pb::Node& node = nodes.emplace_back();
    node.set_name(name);
    node.set_slots(2);
  }
  return PackNodes(nodes);
}

class NodeAgentTest : public ::testing::Test {
 protected:
  NodeAgentTest()
      : authority_(*CertificateAuthority::Create("b0b")), rendezvous_(*authority_.Issue(0)) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    supervisor_ = std::make_unique<ScriptedSupervisor>(loop_, UniqueFd(fds[0]));
    agent_ = std::make_unique<NodeAgent>(loop_, fds[1], -1, /*pmix_server=*/"", [](UniqueFd) {});
    front_end_ = std::make_shared<FrontEnd>(loop_, *agent_);
    prepare_.mutable_job()->set_job_id("b0b");
    prepare_.set_node_index(1);
    *prepare_.mutable_job()->mutable_nodes() = NodesNamed({"node1", "node2"});
    prepare_.mutable_job()->mutable_ranks()->mutable_program()->add_argv("/bin/true");
    prepare_.mutable_job()->mutable_ranks()->mutable_program()->set_cwd("/");
    prepare_.mutable_job()->mutable_timeouts()->set_heartbeat_ms(40);
    prepare_.mutable_job()->mutable_timeouts()->set_dead_ms(30'000);
    prepare_.mutable_job()->mutable_timeouts()->set_join_ms(20'000);
    prepare_.mutable_job()->mutable_policy()->set_max_restarts(5);
    *prepare_.mutable_credentials() = *authority_.Issue(1);
    prepare_.mutable_job()->mutable_ranks()->set_log_dir(dir_.path());
  }

  bool RunUntil(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::After(kWait);
    while (!done() && !deadline.Expired()) {
      loop_.restart();
      loop_.run_one_for(milliseconds(10));
    }
    return done();
  }
  // Returns the agent's next message to the rendezvous; an empty message if none arrives in time.
  pb::AgentMessage Receive() {
    std::optional<pb::AgentMessage> message;
    RunUntil([&] { return message || (message = rendezvous_.Next()); });
    return message.value_or(pb::AgentMessage());
  }
  void Join() {
    const pb::PrepareReply reply = agent_->Prepare(prepare_);
    ASSERT_TRUE(reply.has_info()) << reply.failure().message();
    pb::RunRequest run;
    run.add_rendezvous_endpoints(rendezvous_.endpoint());
    run.mutable_shown()->set_all(true);
    agent_->Run(run, front_end_);
    join_ = Receive();
    ASSERT_TRUE(join_.has_join());
  }
  void SendFromRendezvous(uint64_t attempt,
                          const std::function<void(pb::RendezvousMessage&)>& fill) {
    pb::RendezvousMessage message;
    message.set_attempt(attempt);
    fill(message);
    rendezvous_.Send(std::move(message));
  }
  void Assign(uint64_t attempt) {
    SendFromRendezvous(attempt, [&](pb::RendezvousMessage& message) {
      pb::Assignment& assignment = *message.mutable_assignment();
      assignment.set_first_rank(2);
      assignment.set_world_size(4);
      assignment.set_node_rank(1);
      assignment.set_num_nodes(2);
      assignment.set_master_addr("127.0.0.1");
      assignment.set_master_port(4000 + static_cast<uint32_t>(attempt));
      assignment.set_restart_count(static_cast<uint32_t>(attempt) - 1);
      *assignment.mutable_members() = ToNodeSet({0, 1});
    });
  }
  void Drain(uint64_t attempt) {
    SendFromRendezvous(attempt, [](pb::RendezvousMessage& message) {
      message.mutable_drain()->set_reason("1 restart of 5");
      message.mutable_drain()->set_delay_ms(100);
      message.mutable_drain()->mutable_cause()->set_kind(pb::Cause::WORKER_EXIT);
      message.mutable_drain()->mutable_cause()->set_exit_code(7);
    });
  }
  void StopAll(uint64_t attempt) {
    SendFromRendezvous(attempt, [](pb::RendezvousMessage& message) { message.mutable_stop(); });
  }
  void Close(uint64_t attempt) {
    SendFromRendezvous(attempt, [](pb::RendezvousMessage& message) {
      pb::Completed& completed = *message.mutable_completed();
      completed.set_teardown_complete(true);
      completed.mutable_cause()->set_message("the first cause");
      *completed.mutable_members() = ToNodeSet({1});
      completed.add_victims(3);
    });
  }
  std::string EnvOf(const pb::SpawnWorkers& spawn, int local_rank, const std::string& name) {
    for (const std::string& entry : spawn.workers(local_rank).env()) {
      if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    }
    for (const std::string& entry : spawn.env()) {
      if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    }
    return "(not set)";
  }

  TempDir dir_;
  CertificateAuthority authority_;
  ScriptedRendezvous rendezvous_;
  asio::io_context loop_{1};
  std::unique_ptr<ScriptedSupervisor> supervisor_;
  std::unique_ptr<NodeAgent> agent_;
  std::shared_ptr<FrontEnd> front_end_;
  pb::PrepareRequest prepare_;
  pb::AgentMessage join_;
};

TEST_F(NodeAgentTest, JoinOffersMasterPortAndAddress) {
  Join();
  EXPECT_EQ(join_.join().slots(), 2u);
  EXPECT_GT(join_.join().master_port(), 0u);
  EXPECT_EQ(join_.join().address(), "127.0.0.1");
  EXPECT_EQ(join_.join().reached_at(), "127.0.0.1");
}

TEST_F(NodeAgentTest, RunsProgramOfTheNodesOwnCommand) {
  pb::OwnPart own;
  own.mutable_ranks()->mutable_program()->add_argv("/bin/echo");
  own.mutable_ranks()->mutable_program()->add_argv("mine");
  own.mutable_ranks()->mutable_program()->set_cwd("/tmp");
  pb::EnvVar& variable = *own.mutable_ranks()->mutable_program()->add_env();
  variable.set_name("OWN");
  variable.set_value("yes");
  own.mutable_ranks()->set_log_dir(dir_.path() + "/own");
  own.set_slots(2);
  own.set_private_key(prepare_.credentials().private_key());
  prepare_.mutable_credentials()->clear_private_key();  // the private key stays on its node
  EXPECT_TRUE(agent_->Own(own));
  EXPECT_FALSE(agent_->Own(own));
  pb::EnvVar& foreign = *prepare_.mutable_job()->mutable_ranks()->mutable_program()->add_env();
  foreign.set_name("FOREIGN");
  foreign.set_value("yes");
  prepare_.mutable_job()->set_detachable(true);
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  const pb::SpawnWorkers& spawn = supervisor_->spawned.at(0);
  EXPECT_EQ(spawn.cwd(), "/tmp");
  EXPECT_THAT(spawn.argv(), ElementsAre("/bin/echo", "mine"));
  EXPECT_EQ(EnvOf(spawn, 0, "OWN"), "yes");
  EXPECT_EQ(EnvOf(spawn, 0, "FOREIGN"), "(not set)");
  EXPECT_THAT(spawn.workers(0).stdout_path(), HasSubstr(dir_.path() + "/own/"));
  EXPECT_FALSE(agent_->Detach().ok());
}

TEST_F(NodeAgentTest, RefusesJobThatOwnCommandDidNotSend) {
  pb::OwnPart own;
  *own.mutable_ranks()->mutable_program() = prepare_.job().ranks().program();
  own.set_slots(2);
  EXPECT_TRUE(agent_->Own(own));
  for (const auto& spoil : std::vector<std::function<void(pb::PrepareRequest&)>>{
           [](pb::PrepareRequest& request) { request.mutable_job()->set_job_id("../../etc"); },
           [](pb::PrepareRequest& request) {
             *request.mutable_job()->mutable_nodes() = NodesNamed({"node1", ".."});
           },
           [](pb::PrepareRequest& request) {
             request.mutable_job()->mutable_nodes()->set_slots(0, 1000);
           }}) {
    pb::PrepareRequest bad = prepare_;
    spoil(bad);
    EXPECT_THAT(agent_->Prepare(bad).failure().message(), HasSubstr("not this command's"));
  }
}

TEST_F(NodeAgentTest, StartsAnotherAttemptAfterFailure) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  supervisor_->Exit(1, 7);
  const pb::AgentMessage failed = Receive();
  ASSERT_TRUE(failed.has_worker_failed());
  EXPECT_EQ(failed.attempt(), 1u);
  EXPECT_EQ(failed.worker_failed().cause().rank(), 3);
  EXPECT_EQ(failed.worker_failed().cause().exit_code(), 7);
  EXPECT_EQ(failed.worker_failed().cause().attempt(), 1u);

  Drain(1);
  const pb::AgentMessage drained = Receive();
  ASSERT_TRUE(drained.has_drained());
  EXPECT_EQ(drained.attempt(), 1u);
  EXPECT_GT(drained.drained().master_port(), 0u);
  EXPECT_EQ(supervisor_->stops, 1);

  Assign(2);
  const pb::AgentMessage ready = Receive();
  EXPECT_TRUE(ready.has_ready());
  EXPECT_EQ(ready.attempt(), 2u);
  ASSERT_EQ(supervisor_->spawned.size(), 2u);
  const pb::SpawnWorkers& first = supervisor_->spawned[0];
  const pb::SpawnWorkers& second = supervisor_->spawned[1];
  EXPECT_THAT(first.workers(0).stdout_path(), HasSubstr("/attempt_1/rank_2/"));
  EXPECT_THAT(second.workers(0).stdout_path(), HasSubstr("/attempt_2/rank_2/"));
  EXPECT_EQ(EnvOf(first, 0, "TORCHELASTIC_RESTART_COUNT"), "0");
  EXPECT_EQ(EnvOf(second, 1, "TORCHELASTIC_RESTART_COUNT"), "1");
  EXPECT_EQ(EnvOf(second, 1, "TORCHELASTIC_MAX_RESTARTS"), "5");
  EXPECT_EQ(EnvOf(second, 1, "DSLAUNCH_ATTEMPT"), "2");
  EXPECT_EQ(EnvOf(second, 1, "MASTER_PORT"), "4002");

  supervisor_->Exit(0, 0);
  supervisor_->Exit(1, 0);
  EXPECT_TRUE(Receive().has_finished());
  StopAll(2);
  EXPECT_TRUE(Receive().has_torn_down());
  Close(2);
  ASSERT_TRUE(RunUntil([&] { return front_end_->finished; }));

  const pb::NodeEvent* restarting = front_end_->Find(pb::NodeEvent::kRestarting);
  ASSERT_NE(restarting, nullptr);
  EXPECT_EQ(restarting->restarting().attempt(), 1u);
  EXPECT_EQ(restarting->restarting().reason(), "1 restart of 5");
  EXPECT_EQ(restarting->restarting().delay_ms(), 100u);
  const pb::NodeEvent* started = front_end_->Find(pb::NodeEvent::kStarted, 1);
  ASSERT_NE(started, nullptr);
  EXPECT_EQ(started->started().attempt(), 2u);
  EXPECT_EQ(started->started().restart_count(), 1u);
  EXPECT_THAT(IndexesOf(started->started().members()), ElementsAre(0u, 1u));
  EXPECT_THAT(started->started().pids(), ElementsAre(1'000'000'002, 1'000'000'003));
  const pb::NodeDone& done = front_end_->events.back().done();
  EXPECT_TRUE(done.completed());
  EXPECT_TRUE(done.teardown_complete());
  EXPECT_EQ(done.cause().message(), "the first cause");
  EXPECT_THAT(IndexesOf(done.members()), ElementsAre(1u));
  EXPECT_THAT(done.victims(), ElementsAre(3u));
}

TEST_F(NodeAgentTest, SendsOutputOfOldAttemptFirst) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  Drain(1);
  EXPECT_TRUE(Receive().has_drained());
  Assign(2);
  EXPECT_TRUE(Receive().has_ready());
  const auto output = [&] {
    std::string text;
    for (const pb::NodeEvent& event : front_end_->events) {
      if (event.has_log() && event.log().rank() == 2) text += event.log().data();
    }
    return text;
  };
  EXPECT_TRUE(RunUntil([&] { return output() == "hello of 0\nhello of 1\n"; })) << output();
}

TEST_F(NodeAgentTest, RefusesRanksOfOldOrRunningAttempt) {
  Join();
  Assign(2);
  EXPECT_TRUE(Receive().has_ready());
  Assign(2);
  Assign(1);
  Assign(3);  // must not start before the running attempt has drained
  Drain(2);
  EXPECT_TRUE(Receive().has_drained());
  Assign(2);
  Assign(1);
  Assign(3);
  const pb::AgentMessage ready = Receive();
  EXPECT_TRUE(ready.has_ready());
  EXPECT_EQ(ready.attempt(), 3u);
  EXPECT_EQ(supervisor_->spawned.size(), 2u);
}

TEST_F(NodeAgentTest, StopWhileDrainingEndsJob) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  supervisor_->answers_stop = false;
  Drain(1);
  ASSERT_TRUE(RunUntil([&] { return supervisor_->stops == 1; }));
  StopAll(1);
  ASSERT_TRUE(RunUntil([&] { return supervisor_->stops == 2; }));
  supervisor_->Reaped();
  EXPECT_TRUE(Receive().has_torn_down());
  Assign(2);
  Close(1);
  ASSERT_TRUE(RunUntil([&] { return front_end_->finished; }));
  EXPECT_EQ(supervisor_->spawned.size(), 1u);
}

TEST_F(NodeAgentTest, SpareWaitsWithoutRanksUntilJobEnds) {
  Join();
  ASSERT_TRUE(RunUntil([&] { return rendezvous_.beats() > 5; }));
  Drain(1);  // an attempt in which this node has no ranks
  const pb::AgentMessage drained = Receive();
  EXPECT_TRUE(drained.has_drained());
  EXPECT_EQ(drained.attempt(), 1u);
  StopAll(2);
  EXPECT_TRUE(Receive().has_torn_down());
  Close(2);
  ASSERT_TRUE(RunUntil([&] { return front_end_->finished; }));
  EXPECT_TRUE(supervisor_->spawned.empty());
  EXPECT_EQ(front_end_->Find(pb::NodeEvent::kStarted), nullptr);
}

TEST_F(NodeAgentTest, BeatsWhileLoopIsBlocked) {
  Join();
  ASSERT_TRUE(RunUntil([&] { return rendezvous_.beats() > 2; }));
  const int before = rendezvous_.beats();
  const Deadline deadline = Deadline::After(kWait);
  while (rendezvous_.beats() < before + 10 && !deadline.Expired())
    std::this_thread::sleep_for(milliseconds(10));  // the loop does not run meanwhile
  EXPECT_GE(rendezvous_.beats(), before + 10);
}

TEST_F(NodeAgentTest, RenewsLeaseWhileLoopIsBlocked) {
  prepare_.mutable_job()->mutable_timeouts()->set_lease_ms(20'000);
  Join();
  ASSERT_TRUE(RunUntil([&] { return supervisor_->lease_left_ms.value_or(20'000) < 19'500; }));
  const uint64_t first = agent_->Renew({}).clock_us();  // called outside of the loop
  ASSERT_TRUE(RunUntil([&] { return supervisor_->lease_left_ms > 19'500; }));
  EXPECT_LE(*supervisor_->lease_left_ms, 20'000u);
  pb::RenewRequest old;
  old.set_last_seen_us(first);
  EXPECT_GT(agent_->Renew(old).clock_us(), first);
}

TEST_F(NodeAgentTest, StopsRanksWhenLeaseExpires) {
  prepare_.mutable_job()->mutable_timeouts()->set_lease_ms(2'000);
  {
    const std::jthread renews([this](const std::stop_token& stop) {
      pb::RenewRequest word;
      for (; !stop.stop_requested(); std::this_thread::sleep_for(milliseconds(20)))
        word.set_last_seen_us(agent_->Renew(word).clock_us());
    });
    Join();
    Assign(1);
    ASSERT_TRUE(RunUntil([&] { return supervisor_->spawned.size() == 1; }));
    EXPECT_EQ(supervisor_->stops, 0);
  }
  ASSERT_TRUE(RunUntil([&] { return supervisor_->stops == 1; }));
  pb::AgentMessage message;
  do message = Receive();
  while (message.has_ready());
  EXPECT_EQ(message.stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_THAT(message.stop().cause().message(),
              HasSubstr("its front end vanished, or the connection"));
}

TEST_F(NodeAgentTest, HeartbeatsReportProgressOfRanks) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  supervisor_->Status(1, "{\"event\":\"step\",\"step\":41}\n{\"event\":\"step\",\"step\":42}\n");
  ASSERT_TRUE(RunUntil([&] { return rendezvous_.last_beat().heartbeat().ranks_size() == 1; }));
  const pb::AgentMessage beat = rendezvous_.last_beat();
  EXPECT_EQ(beat.attempt(), 1u);
  EXPECT_EQ(beat.heartbeat().ranks(0).rank(), 3u);
  EXPECT_EQ(beat.heartbeat().ranks(0).step(), 42u);
  // A heartbeat has been answered, so the age of a failure is known to within a round trip.
  supervisor_->Exit(0, 1);
  const pb::AgentMessage failed = Receive();
  EXPECT_GT(failed.worker_failed().rtt_us(), 0u);
}

TEST_F(NodeAgentTest, ReportsOnlyFailuresFromBeforeTheStop) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  StopAll(1);
  EXPECT_TRUE(Receive().has_torn_down());
  // Rank 0 ended before the graceful kill began, but its end is reported late.
  supervisor_->Exit(0, 3);
  supervisor_->Exit(1, 4, /*stopping=*/true);
  const pb::AgentMessage failed = Receive();
  ASSERT_TRUE(failed.has_worker_failed());
  EXPECT_EQ(failed.worker_failed().cause().exit_code(), 3);
  ASSERT_TRUE(RunUntil([&] { return front_end_->Find(pb::NodeEvent::kWorkerEnded, 1); }));
  EXPECT_FALSE(front_end_->Find(pb::NodeEvent::kWorkerEnded)->worker_ended().stopping());
  EXPECT_TRUE(front_end_->Find(pb::NodeEvent::kWorkerEnded, 1)->worker_ended().stopping());
  EXPECT_EQ(rendezvous_.Next(), std::nullopt);
}

TEST_F(NodeAgentTest, DescribesRankThatSeemsToHang) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  SendFromRendezvous(1, [](pb::RendezvousMessage& message) {
    message.mutable_inspect()->add_ranks(3);
    message.mutable_inspect()->set_reason("seems to hang: no step for 60 s");
  });
  ASSERT_TRUE(RunUntil([&] { return front_end_->Find(pb::NodeEvent::kNotice); }));
  EXPECT_EQ(front_end_->Find(pb::NodeEvent::kNotice)->notice().message(),
            "rank 3 (node2, pid 1000000001) seems to hang: no step for 60 s\n  pid 5, thread main");
}

TEST_F(NodeAgentTest, ReportsStacksToRendezvousWithoutNotice) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  SendFromRendezvous(1, [](pb::RendezvousMessage& message) {
    message.mutable_inspect()->add_ranks(3);
    message.mutable_inspect()->set_look(9);
  });
  const pb::AgentMessage answer = Receive();
  ASSERT_TRUE(answer.has_inspected());
  EXPECT_EQ(answer.inspected().look(), 9u);
  EXPECT_EQ(answer.inspected().stacks().rank(), 3u);
  EXPECT_EQ(answer.inspected().stacks().processes(0).pid(), 5);
  EXPECT_EQ(front_end_->Find(pb::NodeEvent::kNotice), nullptr);
}

TEST_F(NodeAgentTest, ReturnsStacksOfRequestedRanks) {
  Join();
  Assign(1);
  EXPECT_TRUE(Receive().has_ready());
  std::optional<pb::StacksReply> reply;
  pb::StacksRequest request;
  request.add_ranks(3);
  request.add_ranks(99);
  agent_->supervisor().GetStacks(request,
                                 [&](pb::StacksReply stacks) { reply = std::move(stacks); });
  ASSERT_TRUE(RunUntil([&] { return reply.has_value(); }));
  ASSERT_EQ(reply->ranks_size(), 1);
  EXPECT_EQ(reply->ranks(0).rank(), 3u);
  request.clear_ranks();
  agent_->supervisor().GetStacks(request,
                                 [&](pb::StacksReply stacks) { reply = std::move(stacks); });
  EXPECT_EQ(reply->ranks_size(), 0) << "none is asked for";
}

// Uses the real rendezvous, which runs in the agent's own process.
TEST_F(NodeAgentTest, SingleNodeRestartsUpToItsLimit) {
  prepare_.set_node_index(0);
  *prepare_.mutable_job()->mutable_nodes() = NodesNamed({"node1"});
  prepare_.mutable_job()->mutable_timeouts()->set_ready_ms(20'000);
  prepare_.mutable_job()->mutable_policy()->set_max_restarts(1);
  prepare_.mutable_job()->mutable_policy()->set_backoff_ms(10);
  prepare_.mutable_job()->mutable_policy()->set_max_backoff_ms(10);
  ASSERT_TRUE(agent_->Prepare(prepare_).has_info());
  agent_->Run(pb::RunRequest(), front_end_);
  ASSERT_TRUE(RunUntil([&] { return front_end_->Find(pb::NodeEvent::kRunning); }));
  supervisor_->Status(0, "{\"event\":\"step\",\"step\":1}\n");
  supervisor_->Exit(1, 7);
  ASSERT_TRUE(RunUntil([&] { return front_end_->Find(pb::NodeEvent::kRunning, 1); }));
  EXPECT_EQ(front_end_->Find(pb::NodeEvent::kStarted, 1)->started().restart_count(), 1u);
  supervisor_->Exit(0, 9);
  ASSERT_TRUE(RunUntil([&] { return front_end_->finished; }));
  const pb::NodeDone& done = front_end_->events.back().done();
  EXPECT_TRUE(done.completed());
  EXPECT_EQ(done.cause().exit_code(), 9);
  EXPECT_EQ(done.cause().attempt(), 2u);
  EXPECT_THAT(IndexesOf(done.members()), ElementsAre(0u));
  EXPECT_EQ(supervisor_->spawned.size(), 2u);
}

}  // namespace
}  // namespace dslaunch::node_agent_test
