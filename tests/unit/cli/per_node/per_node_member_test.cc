// Tests a member's command and node 0's side of the connection, in one process, with a scripted
// agent.
#include "cli/per_node/per_node_member.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <thread>

#include "base/os/socket_pair.h"
#include "cli/per_node/per_node.h"
#include "net/certificate_authority.h"
#include "proto/wire/channel.h"
#include "tests/support/own_process.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::per_node_member_test {
namespace {

using testing::HasSubstr;

constexpr char kToken[] = "3f9c0b6a7d51e2480c9ab17745d2e6f0";

// An agent that reports the success of its rank at once.
class ScriptedAgent : public pb::Agent::Service {
 public:
  // If set, called once the rank has printed a line; the agent then reports that node 0 was lost,
  // instead of a success.
  std::function<void()> lose_node_zero;

  grpc::Status Own(grpc::ServerContext*, const pb::OwnPart*, pb::Empty*) override {
    return grpc::Status::OK;
  }
  grpc::Status Renew(grpc::ServerContext*, const pb::RenewRequest*, pb::RenewReply*) override {
    return grpc::Status::OK;
  }
  grpc::Status Attach(grpc::ServerContext*, const pb::AttachRequest*,
                      grpc::ServerWriter<pb::NodeEvent>* writer) override {
    pb::NodeEvent event;
    event.mutable_started()->set_world_size(2);
    event.mutable_started()->set_first_rank(1);
    event.mutable_started()->add_pids(1);
    writer->Write(event);
    event.mutable_log()->set_rank(1);
    event.mutable_log()->set_data("a line of rank 1\n");
    writer->Write(event);
    if (lose_node_zero) {
      lose_node_zero();
      std::this_thread::sleep_for(milliseconds(500));
      pb::Cause& cause = *event.mutable_outcome()->mutable_cause();
      cause.set_kind(pb::Cause::NODE_LOST);
      cause.set_exit_code(ToInt(ExitCode::kUnavailable));
      cause.set_message("node 0 was lost");
    } else {
      event.mutable_outcome();
    }
    writer->Write(event);
    event.mutable_done();
    writer->Write(event);
    return grpc::Status::OK;
  }
};

// Serves the agent on its connections to the command and to node 0. The agent ends when its
// connection to node 0 has ended.
class ScriptedAgentLink : public NodeLink {
 public:
  // `loses_node_zero`: if valid, the agent loses node 0 once this future is ready.
  explicit ScriptedAgentLink(UniqueFd command, std::shared_future<void> loses_node_zero = {}) {
    if (loses_node_zero.valid()) {
      agent_.lose_node_zero = [this, loses_node_zero] {
        loses_node_zero.wait_for(milliseconds(10'000));
        Abort("");
      };
    }
    grpc::ServerBuilder builder;
    SetCommonServerOptions(builder);
    builder.RegisterService(&agent_);
    server_ = builder.BuildAndStart();
    ServeFd(*server_, std::move(command));
    SocketPair pair = *MakeSocketPair();
    ours_ = std::move(pair.ours);
    theirs_ = std::move(pair.theirs);
  }
  ~ScriptedAgentLink() override { server_->Shutdown(std::chrono::system_clock::now()); }

  UniqueFd TakeFd() override { return std::move(ours_); }
  void Abort(const std::string&) override { ::shutdown(theirs_.get(), SHUT_RDWR); }
  bool WaitEnd(Deadline) override {
    char byte;
    while (::recv(theirs_.get(), &byte, 1, 0) > 0) {
    }
    return true;
  }
  std::string StderrTail() const override { return ""; }
  std::string Address() const override { return "127.0.0.1"; }

 private:
  ScriptedAgent agent_;
  std::unique_ptr<grpc::Server> server_;
  UniqueFd ours_;
  UniqueFd theirs_;
};

int PortOf(const UniqueFd& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

class MemberTest : public testing::Test {
 protected:
  MemberTest() {
    options_.num_nodes = 2;
    options_.num_gpus = 1;
    options_.per_node.emplace();
    options_.per_node->node_rank = 0;
    options_.per_node->host = "127.0.0.1";
    options_.per_node->port = 0;
    program_.add_argv("train.py");
    flags_ = *DraftPerNodePlan(options_, {});
  }

  pb::AdmissionRequest Request(int node_rank) {
    LaunchOptions options = options_;
    options.per_node->node_rank = node_rank;
    return MakeAdmissionRequest(options, {}, flags_, program_);
  }

  MemberOptions Member(int port, const std::shared_ptr<TokenTls>& tls) {
    MemberOptions member;
    member.host = "127.0.0.1";
    member.port = port;
    member.tls = tls;
    member.request = Request(1);
    member.request.set_public_key(MakeNodeKey()->public_key);
    member.shown.shown_ranks = {true, {}};
    member.start_agent = [](const NodeTarget&, int command_fd, Deadline) {
      return Result<std::unique_ptr<NodeLink>>(
          std::make_unique<ScriptedAgentLink>(UniqueFd(fcntl(command_fd, F_DUPFD_CLOEXEC, 0))));
    };
    return member;
  }

  std::shared_ptr<InboundTransport> Inbound(UniqueFd listener, std::shared_ptr<TokenTls> tls) {
    return std::make_shared<InboundTransport>(
        std::move(listener), MakeAdmissionOptions(options_, {}, flags_, Request(0)), std::move(tls),
        nullptr);
  }

  int RunMember(MemberOptions options) {
    const UniqueFd out(
        ::open((folder_ / "shown").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    Terminal terminal(out.get(), out.get(), nullptr);
    return MemberSession(std::move(options), terminal).Run();
  }

  std::string Shown() const {
    std::ifstream file(folder_ / "shown");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // Runs a whole job whose ranks do nothing. Returns the member's exit code.
  int RunJob(bool with_token) {
    UniqueFd listener = *ListenIfNodeZero(*options_.per_node);
    const int port = PortOf(listener);
    const auto token = [&] {
      return with_token ? std::make_shared<TokenTls>(kToken) : std::shared_ptr<TokenTls>();
    };
    const auto inbound = Inbound(std::move(listener), token());
    int exit_code = -1;
    std::thread member([&] { exit_code = RunMember(Member(port, token())); });
    const auto log = [](const std::string&) {};
    EXPECT_TRUE(inbound->Gather(log).ok());
    inbound->Serve(log);
    {
      Result<std::unique_ptr<NodeLink>> link =
          inbound->Connect({"node1", "", 0, ""}, Deadline::After(milliseconds(10'000)));
      EXPECT_TRUE(link.ok());
      if (link.ok()) {
        (*link)->TakeFd();  // closes the connection, because node 0 no longer needs the agent
        EXPECT_TRUE((*link)->WaitEnd(Deadline::After(milliseconds(10'000))));
      }
    }
    inbound->Conclude(0, "all ranks succeeded");
    member.join();
    return exit_code;
  }

  TempDir folder_;
  LaunchOptions options_;
  pb::Program program_;
  LaunchPlan flags_;
};

// Leaks of memory are reported by LeakSanitizer, so this test checks threads and descriptors.
TEST_F(MemberTest, RepeatedJobsReleaseAllResources) {
  for (const bool with_token : {false, true}) {
    HeldResources before;
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(RunJob(with_token), 0) << Shown();
      EXPECT_THAT(Shown(), HasSubstr("a line of rank 1"));
      EXPECT_THAT(Shown(), HasSubstr("all ranks succeeded"));
      if (round == 0) before = HeldResources::Now();
    }
    const HeldResources after = AwaitNoMoreThan(before);
    EXPECT_LE(after.threads, before.threads);
    EXPECT_LE(after.descriptors, before.descriptors);
  }
}

// Simulates a power failure of node 0's machine, after which the connection stays open.
TEST_F(MemberTest, ReportsLostNodeZeroAfterAgentEnded) {
  UniqueFd listener = *ListenIfNodeZero(*options_.per_node);
  MemberOptions options = Member(PortOf(listener), nullptr);
  options.end_timeout = milliseconds(60'000);
  std::promise<void> has_link;
  options.start_agent = [loses_node_zero = has_link.get_future().share()](
                            const NodeTarget&, int command_fd, Deadline) {
    return Result<std::unique_ptr<NodeLink>>(std::make_unique<ScriptedAgentLink>(
        UniqueFd(fcntl(command_fd, F_DUPFD_CLOEXEC, 0)), loses_node_zero));
  };
  const auto inbound = Inbound(std::move(listener), nullptr);
  const auto log = [](const std::string&) {};
  const Clock::time_point begin = Clock::now();
  std::unique_ptr<NodeLink> held;
  std::thread node_zero([&] {
    EXPECT_TRUE(inbound->Gather(log).ok());
    inbound->Serve(log);
    Result<std::unique_ptr<NodeLink>> link =
        inbound->Connect({"node1", "", 0, ""}, Deadline::After(milliseconds(10'000)));
    ASSERT_TRUE(link.ok()) << link.error().message;
    held = *std::move(link);
    has_link.set_value();
  });
  EXPECT_EQ(RunMember(std::move(options)), 69);
  EXPECT_LT(Clock::now() - begin, milliseconds(30'000));
  EXPECT_THAT(Shown(), HasSubstr("was lost: its command ended without a result"));
  node_zero.join();
}

TEST_F(MemberTest, InterruptWhileWaitingReleasesAllResources) {
  const HeldResources before = HeldResources::Now();
  std::thread user([] {
    std::this_thread::sleep_for(milliseconds(300));
    ::kill(::getpid(), SIGINT);
  });
  MemberOptions member = Member(9, nullptr);  // no process listens at port 9
  EXPECT_EQ(RunMember(std::move(member)), 130);
  user.join();
  EXPECT_THAT(Shown(), HasSubstr("interrupted by SIGINT before anything was started"));
  const HeldResources after = AwaitNoMoreThan(before);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
}

TEST_F(MemberTest, LogsAndRetriesUnknownName) {
  MemberOptions member = Member(9, nullptr);
  // The name is longer than a label may be, so no name server is asked.
  member.host = std::string(64, 'x') + ".invalid";
  member.join_timeout = milliseconds(300);
  EXPECT_EQ(RunMember(std::move(member)), 75);
  EXPECT_THAT(Shown(), HasSubstr("cannot resolve the name"));
}

}  // namespace
}  // namespace dslaunch::per_node_member_test
