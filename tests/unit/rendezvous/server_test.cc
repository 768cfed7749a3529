// Tests the gRPC server of the rendezvous over real TLS connections on loopback.
#include "rendezvous/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "net/certificate_authority.h"
#include "net/tunnel.h"
#include "proto/wire/cause.h"
#include "rendezvous/client.h"

namespace dslaunch::server_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kWait(10'000);
constexpr milliseconds kSilence(30'000);

CoordinatorOptions TwoNodes(const std::string& job_id) {
  CoordinatorOptions options;
  options.job_id = job_id;
  options.may_share_machine = true;
  for (const char* name : {"node1", "node2"}) {
    pb::Node node;
    node.set_name(name);
    node.set_slots(1);
    options.nodes.push_back(node);
  }
  options.timeouts.set_join_ms(60'000);
  options.timeouts.set_ready_ms(60'000);
  options.timeouts.set_dead_ms(60'000);
  return options;
}

// Resets this process's TCP connections to `port`, as a firewall does.
void ResetConnectionsTo(int port) {
  constexpr int kMostDescriptors = 1024;
  for (int fd = 3; fd < kMostDescriptors; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != port) continue;
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    EXPECT_EQ(connect(fd, &nobody, sizeof nobody), 0);
  }
}

// An agent's side of the rendezvous protocol.
class Agent {
 public:
  Agent(std::shared_ptr<grpc::Channel> channel, std::string job_id, uint32_t node)
      : job_id_(std::move(job_id)),
        node_(node),
        client_(
            std::move(channel), [this](pb::RendezvousMessage message) { Push(std::move(message)); },
            [this](const std::string&) { End(); }) {}

  void Send(pb::AgentMessage message) {
    message.set_job_id(job_id_);
    message.set_node_index(node_);
    message.set_attempt(attempt_);
    client_.Send(std::move(message));
  }
  void Join(const std::string& claimed = "127.0.0.1") {
    pb::AgentMessage message;
    message.mutable_join()->set_slots(1);
    message.mutable_join()->set_address(claimed);
    message.mutable_join()->set_reached_at(claimed);
    Send(std::move(message));
  }
  // Returns the next message; an empty message if none arrives in time or the stream has ended.
  pb::RendezvousMessage Next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kWait, [this] { return !messages_.empty() || ended_; });
    if (messages_.empty()) return {};
    pb::RendezvousMessage message = std::move(messages_.front());
    messages_.pop_front();
    attempt_ = message.attempt();
    return message;
  }
  bool Ends() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kWait, [this] { return ended_; });
  }

 private:
  void Push(pb::RendezvousMessage message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    changed_.notify_all();
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  const std::string job_id_;
  const uint32_t node_;
  uint64_t attempt_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<pb::RendezvousMessage> messages_;
  bool ended_ = false;
  RendezvousClient client_;
};

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() : authority_(*CertificateAuthority::Create("job")) {
    server_ = Start(TwoNodes("job"));
  }
  std::unique_ptr<RendezvousServer> Start(CoordinatorOptions options) {
    ListenOptions listen;
    listen.loopback_only = true;
    auto server = RendezvousServer::Start(std::move(options), listen, *authority_.Issue(0),
                                          [this](const std::string& line) { Log(line); });
    EXPECT_TRUE(server.ok());
    return *std::move(server);
  }
  // Finds and connects to the rendezvous as node 1.
  Result<RendezvousRoute> Find(CertificateAuthority& authority,
                               const std::vector<std::string>& endpoints,
                               milliseconds limit = kWait) {
    return FindRendezvous(endpoints, "job", 0, *authority.Issue(1), Deadline::After(limit),
                          kSilence);
  }
  void Log(const std::string& line) {
    const std::lock_guard lock(log_mutex_);
    log_.push_back(line);
  }
  std::vector<std::string> log() {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }

  CertificateAuthority authority_;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<RendezvousServer> server_;
};

TEST_F(ServerTest, RunsAJobFromJoinToTeardown) {
  Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
  ASSERT_TRUE(route.ok()) << route.error().message;
  EXPECT_EQ(route->address, "127.0.0.1");
  Agent first(server_->InProcessChannel(), "job", 0);
  Agent second(route->channel, "job", 1);
  first.Join();
  second.Join();
  EXPECT_EQ(first.Next().assignment().first_rank(), 0u);
  EXPECT_EQ(second.Next().assignment().first_rank(), 1u);
  pb::AgentMessage finished;
  finished.mutable_finished();
  first.Send(finished);
  second.Send(finished);
  EXPECT_TRUE(first.Next().has_all_ready());
  EXPECT_TRUE(first.Next().has_stop());
  EXPECT_TRUE(second.Next().has_all_ready());
  EXPECT_TRUE(second.Next().has_stop());
  pb::AgentMessage torn_down;
  torn_down.mutable_torn_down();
  first.Send(torn_down);
  second.Send(torn_down);
  EXPECT_TRUE(first.Next().completed().teardown_complete());
  EXPECT_TRUE(second.Next().completed().teardown_complete());
  EXPECT_TRUE(first.Ends());
  EXPECT_TRUE(second.Ends());
}

TEST_F(ServerTest, DisconnectedAgentStopsTheOthers) {
  Agent first(server_->InProcessChannel(), "job", 0);
  {
    Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
    ASSERT_TRUE(route.ok());
    Agent second(route->channel, "job", 1);
    first.Join();
    second.Join();
    EXPECT_TRUE(second.Next().has_assignment());
  }
  EXPECT_TRUE(first.Next().has_assignment());
  EXPECT_EQ(first.Next().stop().cause().kind(), pb::Cause::NODE_LOST);
}

TEST_F(ServerTest, SilentAgentIsRefusedAndMayRejoin) {
  CoordinatorOptions options = TwoNodes("job");
  options.timeouts.set_dead_ms(1'000);
  options.policy.set_max_restarts(1);
  const auto server = Start(options);
  const RendezvousRoute route = *Find(authority_, server->endpoints());
  Agent first(server->InProcessChannel(), "job", 0);
  Agent second(route.channel, "job", 1);
  first.Join();
  second.Join();
  EXPECT_TRUE(first.Next().has_assignment());
  EXPECT_TRUE(second.Next().has_assignment());
  {
    const std::jthread alive([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        pb::AgentMessage heartbeat;
        heartbeat.mutable_heartbeat();
        first.Send(heartbeat);
        server->Tick();
        std::this_thread::sleep_for(milliseconds(20));
      }
    });
    EXPECT_THAT(second.Next().refused().cause().message(), HasSubstr("node2 was lost"));
    EXPECT_TRUE(second.Ends());
  }
  pb::RendezvousMessage message = first.Next();
  while (message.has_heartbeat() || message.has_cut_off()) message = first.Next();
  EXPECT_EQ(message.drain().cause().kind(), pb::Cause::NODE_LOST);
  Agent anew(route.channel, "job", 1);
  anew.Join();
  pb::AgentMessage drained;
  drained.mutable_drained();
  first.Send(drained);
  message = anew.Next();
  EXPECT_TRUE(message.has_assignment());
  EXPECT_EQ(message.attempt(), 2u);
}

TEST_F(ServerTest, RefusesAgentOfAnotherJobWithReason) {
  // The other authority has the same name, but other keys.
  CertificateAuthority other = *CertificateAuthority::Create("job");
  const Result<RendezvousRoute> route = Find(other, server_->endpoints(), milliseconds(500));
  ASSERT_FALSE(route.ok());
  EXPECT_EQ(route.error().code, ExitCode::kTimedOut);
  EXPECT_THAT(route.error().message,
              HasSubstr(server_->endpoints()[0] + " (its certificate is not from this job"));
}

TEST_F(ServerTest, RefusesNodeThatClaimsToBeAnother) {
  const Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
  ASSERT_TRUE(route.ok());
  Agent liar(route->channel, "job", 0);
  liar.Join();
  EXPECT_TRUE(liar.Ends());
  EXPECT_THAT(log(), ElementsAre("node 1 spoke for node 0 and was disconnected"));
  Agent honest(route->channel, "job", 1);
  Agent first(server_->InProcessChannel(), "job", 0);
  honest.Join();
  first.Join();
  EXPECT_TRUE(honest.Next().has_assignment());
}

// A node must not choose the address, because the ranks of all nodes connect to it.
TEST_F(ServerTest, NodeCannotChooseMasterAddr) {
  const Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
  ASSERT_TRUE(route.ok());
  Agent first(server_->InProcessChannel(), "job", 0);
  Agent liar(route->channel, "job", 1);
  pb::AgentMessage join;
  join.mutable_join()->set_slots(1);
  first.Send(join);
  liar.Join("192.0.2.66");
  EXPECT_EQ(first.Next().assignment().master_addr(), "127.0.0.1");
  EXPECT_THAT(log(), ElementsAre("node 1 claims '192.0.2.66' as its address; 127.0.0.1 is used",
                                 "node 1 claims '192.0.2.66' as this machine's address; "
                                 "127.0.0.1 is used"));
}

TEST_F(ServerTest, ClientRefusesNodeThatIsNotTheRendezvous) {
  const Result<RendezvousRoute> route =
      FindRendezvous(server_->endpoints(), "job", 1, *authority_.Issue(1),
                     Deadline::After(milliseconds(500)), kSilence);
  ASSERT_FALSE(route.ok());
  EXPECT_THAT(route.error().message, HasSubstr("(it is another node of the job)"));
}

TEST_F(ServerTest, StreamResumesAfterItsConnectionIsReset) {
  constexpr uint64_t kToken = 7;
  const auto resume = [](Agent& agent, uint64_t token) {
    pb::AgentMessage message;
    message.mutable_resume()->set_stream_token(token);
    message.mutable_resume()->set_received(1);
    agent.Send(std::move(message));
  };
  const Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
  ASSERT_TRUE(route.ok());
  Agent first(server_->InProcessChannel(), "job", 0);
  Agent second(route->channel, "job", 1);
  first.Join();
  pb::AgentMessage join;
  join.set_number(1);
  join.mutable_join()->set_slots(1);
  join.mutable_join()->set_stream_token(kToken);
  second.Send(join);
  EXPECT_TRUE(first.Next().has_assignment());
  const pb::RendezvousMessage assigned = second.Next();
  EXPECT_TRUE(assigned.has_assignment());
  EXPECT_EQ(assigned.number(), 1u);

  const std::string& endpoint = server_->endpoints().front();
  ResetConnectionsTo(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  EXPECT_TRUE(second.Ends());
  EXPECT_TRUE(*route->broke);
  pb::AgentMessage stop;
  *stop.mutable_stop()->mutable_cause() =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "enough");
  first.Send(stop);  // sent while node 1 is disconnected
  EXPECT_TRUE(first.Next().has_stop());

  const Result<RendezvousRoute> other = Find(authority_, server_->endpoints());
  ASSERT_TRUE(other.ok());
  Agent stranger(other->channel, "job", 1);
  resume(stranger, kToken + 1);
  EXPECT_TRUE(stranger.Ends());

  const Result<RendezvousRoute> again = Find(authority_, server_->endpoints());
  ASSERT_TRUE(again.ok());
  Agent back(again->channel, "job", 1);
  resume(back, kToken);
  const pb::RendezvousMessage missed = back.Next();
  EXPECT_TRUE(missed.has_stop());
  EXPECT_EQ(missed.number(), 2u);
  back.Send(join);  // an accepted message must not be accepted again
  pb::AgentMessage torn_down;
  torn_down.set_number(2);
  torn_down.mutable_torn_down();
  back.Send(torn_down);
  pb::AgentMessage own;
  own.mutable_torn_down();
  first.Send(own);
  EXPECT_TRUE(back.Next().completed().teardown_complete());
}

TEST_F(ServerTest, LosesAndNamesAgentWithInvalidMessage) {
  const Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
  ASSERT_TRUE(route.ok());
  Agent second(route->channel, "job", 1);
  Agent first(server_->InProcessChannel(), "job", 0);
  first.Join();
  second.Join();
  EXPECT_TRUE(first.Next().has_assignment());
  EXPECT_TRUE(second.Next().has_assignment());
  pb::AgentMessage failed;
  failed.mutable_worker_failed()->mutable_cause()->set_kind(pb::Cause::WORKER_EXIT);
  failed.mutable_worker_failed()->mutable_cause()->set_rank(1);
  failed.mutable_worker_failed()->mutable_cause()->set_exit_code(256);
  second.Send(failed);
  EXPECT_TRUE(second.Ends());
  const pb::Cause cause = first.Next().stop().cause();
  EXPECT_EQ(cause.kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(cause.exit_code(), 69);
  EXPECT_EQ(cause.message(),
            "node2 was lost: its agent sent exit code of a failure = 256, which is not from 1 to "
            "255");
}

TEST_F(ServerTest, HugeMessageEndsOnlyItsConnection) {
  const Result<RendezvousRoute> route = Find(authority_, server_->endpoints());
  ASSERT_TRUE(route.ok());
  Agent second(route->channel, "job", 1);
  Agent first(server_->InProcessChannel(), "job", 0);
  first.Join();
  second.Join();
  EXPECT_TRUE(first.Next().has_assignment());
  EXPECT_TRUE(second.Next().has_assignment());
  pb::AgentMessage huge;
  huge.mutable_stop()->mutable_cause()->set_message(std::string(1 << 20, 'x'));
  second.Send(huge);
  EXPECT_TRUE(second.Ends());
  EXPECT_EQ(first.Next().stop().cause().kind(), pb::Cause::NODE_LOST);
}

TEST_F(ServerTest, ConnectsToFirstEndpointThatAnswers) {
  const Result<RendezvousRoute> route =
      Find(authority_, {"127.0.0.1:1", "not an address:1", server_->endpoints()[0]});
  EXPECT_TRUE(route.ok());
}

TEST_F(ServerTest, ReportsFailureOfEachEndpoint) {
  const Result<RendezvousRoute> route =
      Find(authority_, {"127.0.0.1:1", "not an address:1"}, milliseconds(300));
  ASSERT_FALSE(route.ok());
  EXPECT_THAT(route.error().message,
              HasSubstr("127.0.0.1:1 (Connection refused), not an address:1 (no numeric address)"));
}

TEST(ServerWithOneNodeTest, ListensNowhereWithASingleNode) {
  CoordinatorOptions options = TwoNodes("job");
  options.nodes.pop_back();
  const auto server = RendezvousServer::Start(options, {}, pb::Credentials(), nullptr);
  ASSERT_TRUE(server.ok());
  EXPECT_TRUE((*server)->endpoints().empty());
}

}  // namespace
}  // namespace dslaunch::server_test
