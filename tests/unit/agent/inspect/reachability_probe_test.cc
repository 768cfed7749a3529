#include "agent/inspect/reachability_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <asio/executor_work_guard.hpp>
#include <asio/write.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "net/addresses.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::reachability_probe_test {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

// Runs a probe on its own loop, as in an inspection.
class ReachabilityProbeTest : public ::testing::Test {
 protected:
  ReachabilityProbeTest() : work_(asio::make_work_guard(loop_)), probe_(loop_) {
    ::setenv("XDG_STATE_HOME", (dir_ / "state").c_str(), 1);
    std::filesystem::create_directories(dir_ / "cwd");
  }
  ~ReachabilityProbeTest() override {
    Stop();
    ::unsetenv("XDG_STATE_HOME");
  }

  // Starts listening. Returns the port, or 0 if this machine has no address other than loopback.
  int Start(int for_ms = 5000) {
    pb::ListenRequest request;
    request.set_token(kToken);
    request.set_for_ms(static_cast<uint32_t>(for_ms));
    request.set_cwd(dir_ / "cwd");
    listened_ = probe_.Start(request);
    thread_ = std::thread([this] { loop_.run(); });
    return listened_.endpoints().empty() ? 0 : PortOfEndpoint(listened_.endpoints(0));
  }
  void Stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }
  pb::ReachReply Reach(const std::vector<std::string>& endpoints, int patience_ms = 2000) {
    pb::ReachRequest request;
    request.set_token(kToken);
    for (const std::string& endpoint : endpoints) request.add_endpoints(endpoint);
    request.set_patience_ms(static_cast<uint32_t>(patience_ms));
    request.set_cwd(dir_ / "cwd");
    return ProbeReachability(request);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
      if (!entry.is_directory()) files.push_back(entry.path());
    }
    return files;
  }

  TempDir dir_;
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  ReachabilityProbe probe_;
  pb::ListenReply listened_;
  std::thread thread_;
};

TEST_F(ReachabilityProbeTest, ReachesEachAddressAndNamesInterface) {
  const int port = Start();
  if (port == 0) GTEST_SKIP() << "this machine has no address but loopback";
  const pb::ReachReply reply = Reach({JoinHostPort("127.0.0.1", port), JoinHostPort("::1", port)});
  EXPECT_TRUE(reply.results(0).reached()) << reply.results(0).trouble();
  EXPECT_EQ(reply.results(0).interface(), "lo");
  EXPECT_EQ(reply.results(0).local_address(), "127.0.0.1");
  EXPECT_EQ(reply.results(0).endpoint(), JoinHostPort("127.0.0.1", port));
}

TEST_F(ReachabilityProbeTest, FolderMarkersExistUntilItStops) {
  Start();
  EXPECT_EQ(Files().size(), 2u);
  const pb::ReachReply reply = Reach({});
  ASSERT_EQ(reply.folders_size(), 2);
  EXPECT_TRUE(reply.folders(0).seen());
  EXPECT_TRUE(reply.folders(1).seen());
  Stop();
  probe_.Stop();
  EXPECT_THAT(Files(), ::testing::IsEmpty());
  EXPECT_FALSE(Reach({}).folders(0).seen());
}

TEST_F(ReachabilityProbeTest, StopsWhenItsTimeIsOver) {
  const int port = Start(100);
  const Deadline deadline = Deadline::After(milliseconds(5000));
  while (!Files().empty() && !deadline.Expired()) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_THAT(Files(), ::testing::IsEmpty());
  if (port == 0) return;
  EXPECT_FALSE(Reach({JoinHostPort("127.0.0.1", port)}).results(0).reached());
}

TEST_F(ReachabilityProbeTest, ReportsMissingFolder) {
  std::filesystem::remove(dir_ / "cwd");
  Start();
  EXPECT_THAT(listened_.folders(1).trouble(), HasSubstr("No such file"));
  EXPECT_THAT(Reach({}).folders(1).trouble(), HasSubstr("No such file"));
}

TEST_F(ReachabilityProbeTest, RejectsTokenThatIsAPath) {
  pb::ListenRequest request;
  request.set_token("../../tmp/x");
  EXPECT_NE(probe_.Start(request).refusal(), "");
  EXPECT_THAT(Files(), ::testing::IsEmpty());
}

TEST_F(ReachabilityProbeTest, DetectsAnotherListenerAtTheAddress) {
  asio::ip::tcp::acceptor other(loop_, {asio::ip::make_address("127.0.0.1"), 0});
  std::thread talker([&] {
    asio::ip::tcp::socket socket(loop_);
    other.accept(socket);
    asio::write(socket, asio::buffer("SSH-2.0-OpenSSH\r\n", 17));
  });
  const std::string endpoint = JoinHostPort("127.0.0.1", other.local_endpoint().port());
  const pb::ReachReply reply = Reach({endpoint});
  talker.join();
  EXPECT_FALSE(reply.results(0).reached());
  EXPECT_EQ(reply.results(0).trouble(), "something else listens at this address");
}

TEST_F(ReachabilityProbeTest, WaitsNoLongerThanRequested) {
  asio::ip::tcp::acceptor silent(loop_, {asio::ip::make_address("127.0.0.1"), 0});
  const std::string endpoint = JoinHostPort("127.0.0.1", silent.local_endpoint().port());
  const auto before = Clock::now();
  const pb::ReachReply reply = Reach({endpoint, "127.0.0.1:1", "nonsense"}, 300);
  EXPECT_LT(Clock::now() - before, milliseconds(2000));
  EXPECT_EQ(reply.results(0).trouble(), "it accepts the connection but does not answer");
  EXPECT_EQ(reply.results(1).trouble(), "Connection refused");
  EXPECT_NE(reply.results(2).trouble(), "");
}

}  // namespace
}  // namespace dslaunch::reachability_probe_test
