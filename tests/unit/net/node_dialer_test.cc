#include "net/node_dialer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <atomic>
#include <future>

#include "net/acceptor.h"
#include "net/certificate_authority.h"
#include "net/connect_attempt.h"

namespace dslaunch::node_dialer_test {
namespace {

using ::testing::HasSubstr;

constexpr milliseconds kWait(10'000);

class NodeDialerTest : public ::testing::Test {
 protected:
  NodeDialerTest() : authority_(*CertificateAuthority::Create("job")) {
    AcceptorOptions options;
    options.job_id = "job";
    options.num_nodes = 3;
    options.loopback_only = true;
    acceptor_ = *Acceptor::Start(
        options, *authority_.Issue(1),
        [this](const AcceptedNode& node, UniqueFd plain) {
          if (!has_arrived_.exchange(true)) arrived_.set_value({node.index, std::move(plain)});
        },
        [](const std::string&) {});
    dialer_ = *NodeDialer::Start("job", *authority_.Issue(2));
  }

  Result<UniqueFd> Dial(const std::vector<std::string>& endpoints, uint32_t node,
                        milliseconds limit = kWait) {
    const auto done = std::make_shared<std::promise<Result<UniqueFd>>>();
    auto result = done->get_future();
    dialer_->Dial(endpoints, node, limit,
                  [done](Result<UniqueFd> plain) { done->set_value(std::move(plain)); });
    return result.get();
  }
  std::string Endpoint() const { return "127.0.0.1:" + std::to_string(acceptor_->port()); }

  CertificateAuthority authority_;
  std::atomic<bool> has_arrived_ = false;
  std::promise<std::pair<uint32_t, UniqueFd>> arrived_;  // the first connection that arrived
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<NodeDialer> dialer_;
};

TEST_F(NodeDialerTest, UsesFirstEndpointThatAnswers) {
  const Result<UniqueFd> own = Dial({"127.0.0.1:1", Endpoint()}, 1);
  ASSERT_TRUE(own.ok()) << own.error().message;
  auto arrived = arrived_.get_future();
  ASSERT_EQ(arrived.wait_for(kWait), std::future_status::ready);
  const auto [node, plain] = arrived.get();
  EXPECT_EQ(node, 2u);
  ASSERT_EQ(send(own->get(), "hello", 5, MSG_NOSIGNAL), 5);
  char text[5];
  ASSERT_EQ(recv(plain.get(), text, sizeof text, MSG_WAITALL), 5);
  EXPECT_EQ(std::string(text, 5), "hello");
}

TEST_F(NodeDialerTest, TriesNoOtherEndpointOnceOneAnswers) {
  asio::io_context loop;
  asio::ip::tcp::acceptor other(loop, {asio::ip::address_v4::loopback(), 0});
  const auto begin = Clock::now();
  const Result<UniqueFd> own =
      Dial({Endpoint(), "127.0.0.1:" + std::to_string(other.local_endpoint().port())}, 1);
  ASSERT_TRUE(own.ok()) << own.error().message;
  if (Clock::now() - begin >= ConnectSearch::kNextAfter)
    GTEST_SKIP() << "this machine is too busy to tell";
  other.non_blocking(true);
  std::error_code nobody;
  other.accept(nobody);
  EXPECT_EQ(nobody, asio::error::would_block);
}

TEST_F(NodeDialerTest, SilentEndpointDoesNotDelayOthers) {
  asio::io_context loop;
  asio::ip::tcp::acceptor silent(loop, {asio::ip::address_v4::loopback(), 0});
  const Result<UniqueFd> own =
      Dial({"127.0.0.1:" + std::to_string(silent.local_endpoint().port()), Endpoint()}, 1,
           milliseconds(4'000));  // less than the silent endpoint's limit
  ASSERT_TRUE(own.ok()) << own.error().message;
}

TEST_F(NodeDialerTest, RefusesAnotherNode) {
  const Result<UniqueFd> plain = Dial({Endpoint()}, 0, milliseconds(300));
  ASSERT_FALSE(plain.ok());
  EXPECT_EQ(plain.error().code, ExitCode::kTimedOut);
  EXPECT_THAT(plain.error().message, HasSubstr(Endpoint()));
}

TEST_F(NodeDialerTest, ReportsLastFailureOfEachEndpoint) {
  const Result<UniqueFd> plain = Dial({"127.0.0.1:1", "nowhere:5"}, 1, milliseconds(300));
  ASSERT_FALSE(plain.ok());
  EXPECT_EQ(plain.error().code, ExitCode::kTimedOut);
  EXPECT_THAT(plain.error().message, HasSubstr("127.0.0.1:1 (Connection refused)"));
  EXPECT_THAT(plain.error().message, HasSubstr("nowhere:5 (no numeric address)"));
}

}  // namespace
}  // namespace dslaunch::node_dialer_test
