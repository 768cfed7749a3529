// Tests both ends of a relay, the front end's and the node's, with a socket pair in place of SSH.
#include "cli/relay/relay_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/relay/relay_service.h"
#include "base/os/socket_pair.h"
#include "proto/wire/channel.h"

namespace dslaunch::relay_client_test {
namespace {

using testing::HasSubstr;

Deadline Soon() { return Deadline::After(milliseconds(30'000)); }

// The node's end of the relay: RelayService, as in `dslaunch-agent relay`.
class Relay {
 public:
  explicit Relay(UniqueFd link) {
    grpc::ServerBuilder builder;
    SetCommonServerOptions(builder);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ServeFd(*server_, std::move(link));
    thread_ = std::thread([this] {
      const auto work = asio::make_work_guard(loop_);
      loop_.run();
    });
  }
  ~Relay() {
    server_->Shutdown(std::chrono::system_clock::now());
    loop_.stop();
    thread_.join();
  }

 private:
  asio::io_context loop_{1};
  RelayService service_{loop_};
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

class Link : public NodeLink {
 public:
  explicit Link(UniqueFd fd) : own_(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), fd_(std::move(fd)) {}
  UniqueFd TakeFd() override { return std::move(fd_); }
  void Abort(const std::string&) override { ::shutdown(own_.get(), SHUT_RDWR); }
  bool WaitEnd(Deadline) override { return true; }
  std::string StderrTail() const override { return ""; }
  std::string Address() const override { return "10.0.0.1"; }

 private:
  UniqueFd own_;
  UniqueFd fd_;
};

class RelayClientTest : public testing::Test {
 protected:
  RelayClientTest() {
    Result<SocketPair> pair = MakeSocketPair();
    relay_ = std::make_unique<Relay>(std::move(pair->theirs));
    auto link = std::make_unique<Link>(std::move(pair->ours));
    link_ = link.get();
    client_ = std::make_shared<RelayClient>("node1", std::move(link),
                                            *LoopThread::Start("for the relays"));
  }

  std::unique_ptr<RunningProgram> Start(const std::string& script) {
    return *client_->Start({"sh", "-c", script});
  }

  static std::string ReadAll(const UniqueFd& stream) {
    std::string text;
    char chunk[4096];
    // SIGCHLD, which the service handles, may interrupt the read.
    while (true) {
      const ssize_t size = ::read(stream.get(), chunk, sizeof chunk);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return text;
      text.append(chunk, static_cast<size_t>(size));
    }
  }
  static std::string ReadLine(const UniqueFd& stream) {
    std::string line;
    char c = 0;
    while (c != '\n') {
      const ssize_t size = ::read(stream.get(), &c, 1);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) break;
      if (c != '\n') line += c;
    }
    return line;
  }
  static void Write(const UniqueFd& stream, std::string_view text) {
    while (!text.empty()) {
      const ssize_t size = ::write(stream.get(), text.data(), text.size());
      if (size < 0 && errno == EINTR) continue;
      ASSERT_GT(size, 0);
      text.remove_prefix(static_cast<size_t>(size));
    }
  }

  std::unique_ptr<Relay> relay_;
  Link* link_ = nullptr;
  std::shared_ptr<RelayClient> client_;
};

TEST_F(RelayClientTest, ForwardsInputOutputAndExitStatus) {
  const auto program = Start("cat; echo sorry >&2; exit 3");
  const UniqueFd stream = program->TakeStream();
  Write(stream, "hello");
  ::shutdown(stream.get(), SHUT_WR);
  EXPECT_EQ(ReadAll(stream), "hello");
  EXPECT_EQ(program->WaitEnd(Soon()), 3 << 8);
  EXPECT_EQ(program->StderrTail(), "sorry\n");
  EXPECT_TRUE(client_->is_alive());
}

TEST(RelayLoopTest, LoopEndsWithItsLastUser) {
  std::weak_ptr<asio::io_context> context;
  {
    std::shared_ptr<LoopThread> loop = *LoopThread::Start("for the relays");
    context = loop->context();
    Result<SocketPair> pair = MakeSocketPair();
    const Relay relay(std::move(pair->theirs));
    const auto client = std::make_shared<RelayClient>(
        "node1", std::make_unique<Link>(std::move(pair->ours)), std::move(loop));
    const auto program = *client->Start({"sleep", "100"});
    EXPECT_FALSE(context.expired());
  }
  EXPECT_TRUE(context.expired()) << "its thread still runs";
}

TEST_F(RelayClientTest, SlowReaderDoesNotBlockOtherPrograms) {
  constexpr size_t kBytes = 8 << 20;
  const auto slow = Start("head -c " + std::to_string(kBytes) + " /dev/zero");
  std::vector<std::unique_ptr<RunningProgram>> others;
  for (int i = 0; i < 20; ++i) others.push_back(Start("echo " + std::to_string(i)));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ReadAll(others[static_cast<size_t>(i)]->TakeStream()), std::to_string(i) + "\n");
    EXPECT_EQ(others[static_cast<size_t>(i)]->WaitEnd(Soon()), 0);
  }
  EXPECT_EQ(ReadAll(slow->TakeStream()).size(), kBytes);
  EXPECT_EQ(slow->WaitEnd(Soon()), 0);
}

TEST_F(RelayClientTest, ReportsMissingProgram) {
  const auto program = *client_->Start({"no-such-program"});
  EXPECT_EQ(ReadAll(program->TakeStream()), "");
  EXPECT_EQ(program->WaitEnd(Soon()), 255 << 8);
  EXPECT_THAT(program->StderrTail(), HasSubstr("there is no program 'no-such-program' in PATH"));
}

TEST_F(RelayClientTest, PassesAgentFileAsStdin) {
  const auto program = *client_->StartReadingAgent({"wc", "-c"});
  EXPECT_EQ(std::stoull(ReadAll(program->TakeStream())),
            std::filesystem::file_size("/proc/self/exe"));
}

TEST_F(RelayClientTest, KillGroupEndsChildrenToo) {
  const auto program = Start("sleep 100 & echo $!; wait");
  const UniqueFd stream = program->TakeStream();
  const std::string text = ReadLine(stream);
  program->KillGroup();
  EXPECT_EQ(program->WaitEnd(Soon()), std::nullopt);
  // The child is now an orphan, adopted by this process or by init.
  const Deadline deadline = Soon();
  const std::string stat = "/proc/" + std::to_string(std::stoi(text)) + "/cmdline";
  while (std::filesystem::exists(stat) && !deadline.Expired()) {
    std::ifstream file(stat);
    if (std::string line; !std::getline(file, line)) break;  // a zombie has an empty command line
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_FALSE(deadline.Expired());
}

TEST_F(RelayClientTest, LostRelayEndsItsPrograms) {
  const auto program = Start("echo up; sleep 100");
  const UniqueFd stream = program->TakeStream();
  ASSERT_EQ(ReadLine(stream), "up");
  link_->Abort("");
  EXPECT_EQ(ReadAll(stream), "");
  EXPECT_EQ(program->WaitEnd(Soon()), std::nullopt);
  EXPECT_FALSE(client_->is_alive());
  EXPECT_EQ(program->StderrTail(), "the connection to the relay on node1 broke");
}

TEST_F(RelayClientTest, EndIfIdleKeepsRelayWithRunningPrograms) {
  const auto program = Start("cat");
  const UniqueFd stream = program->TakeStream();
  EXPECT_TRUE(client_->EndIfIdle(Soon()));
  EXPECT_TRUE(client_->is_alive());
  ::shutdown(stream.get(), SHUT_WR);
  EXPECT_EQ(program->WaitEnd(Soon()), 0);
  EXPECT_TRUE(client_->EndIfIdle(Soon()));
  EXPECT_FALSE(client_->is_alive());
}

}  // namespace
}  // namespace dslaunch::relay_client_test
