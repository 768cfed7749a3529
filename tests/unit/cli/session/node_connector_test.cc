#include "cli/session/node_connector.h"

#include <gtest/gtest.h>

#include <asio/executor_work_guard.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace dslaunch::node_connector_test {
namespace {

using Ms = milliseconds;

// A transport that reaches no node. `connect` is called for each attempt and may take time.
class FakeTransport : public Transport {
 public:
  FakeTransport(size_t at_once, std::function<void(const std::string& node)> connect)
      : at_once_(at_once), connect_(std::move(connect)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline) override {
    most_ = std::max<int>(most_, ++now_);
    connect_(target.name);
    --now_;
    return Error{ExitCode::kUnavailable, target.name};
  }
  size_t ConnectsAtOnce() const override { return at_once_; }

  int most_at_once() const { return most_; }

 private:
  const size_t at_once_;
  const std::function<void(const std::string&)> connect_;
  std::atomic<int> now_ = 0;
  std::atomic<int> most_ = 0;
};

class NodeConnectorTest : public ::testing::Test {
 protected:
  ~NodeConnectorTest() override { poster_->Close(); }

  void Connect(const std::shared_ptr<Transport>& transport, const std::vector<std::string>& names) {
    connector_.emplace(loop_, poster_, transport, Ms(20'000), Ms(10));
    for (size_t i = 0; i < names.size(); ++i) {
      connector_->Connect(i, {names[i], names[i], 0, ""}, /*attempt=*/0,
                          [this](const Result<std::unique_ptr<NodeLink>>& link) {
                            answered_.push_back(link.error().message);
                          });
    }
  }
  bool RunUntil(const std::function<bool()>& is_over) {
    const Deadline deadline = Deadline::After(Ms(20'000));
    while (!is_over() && !deadline.Expired()) loop_.run_one_for(Ms(50));
    return is_over();
  }

  asio::io_context loop_{1};
  const asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(loop_);
  std::shared_ptr<LoopPoster> poster_ = std::make_shared<LoopPoster>(loop_);
  std::optional<NodeConnector> connector_;
  std::vector<std::string> answered_;
};

TEST_F(NodeConnectorTest, LimitsAttemptsAtOnceAndTriesAllNodes) {
  const auto transport = std::make_shared<FakeTransport>(
      3, [](const std::string&) { std::this_thread::sleep_for(Ms(20)); });
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back("node" + std::to_string(i));
  Connect(transport, names);
  ASSERT_TRUE(RunUntil([&] { return answered_.size() == names.size(); }));
  EXPECT_EQ(transport->most_at_once(), 3);
  std::ranges::sort(answered_);
  std::ranges::sort(names);
  EXPECT_EQ(answered_, names);
}

TEST_F(NodeConnectorTest, SilentHostDelaysOthersOnlyBriefly) {
  std::atomic<bool> is_over = false;
  const auto transport = std::make_shared<FakeTransport>(1, [&](const std::string& node) {
    while (node == "silent" && !is_over) std::this_thread::sleep_for(Ms(10));
  });
  Connect(transport, {"silent", "node1", "node2"});
  EXPECT_TRUE(RunUntil([&] { return answered_.size() == 2; }));
  EXPECT_EQ(answered_, std::vector<std::string>({"node1", "node2"}));
  EXPECT_EQ(transport->most_at_once(), 2);
  is_over = true;
  EXPECT_TRUE(RunUntil([&] { return answered_.size() == 3; }));
}

TEST_F(NodeConnectorTest, StopDropsPendingAttempts) {
  std::atomic<bool> is_over = false;
  const auto transport = std::make_shared<FakeTransport>(1, [&](const std::string&) {
    while (!is_over) std::this_thread::sleep_for(Ms(10));
  });
  Connect(transport, {"node1", "node2"});
  connector_->Stop();
  is_over = true;
  EXPECT_TRUE(RunUntil([&] { return answered_.size() == 1; }));
  loop_.run_for(Ms(100));
  EXPECT_EQ(answered_, std::vector<std::string>({"node1"}));
}

}  // namespace
}  // namespace dslaunch::node_connector_test
