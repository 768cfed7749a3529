#include "agent/probe/node_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <asio/executor_work_guard.hpp>
#include <optional>
#include <vector>

#include "agent/probe/node_faults.h"

namespace dslaunch::node_check_test {
namespace {

using ::testing::StartsWith;

class NodeCheckTest : public ::testing::Test {
 protected:
  // Runs the check. Returns its result; nullopt if it has not ended.
  std::optional<std::string> Run(const std::vector<std::string>& command, milliseconds limit) {
    check_.Begin(Request(command), limit, [this](std::string unfit) { unfit_ = std::move(unfit); });
    EXPECT_FALSE(unfit_) << "not from inside Begin";
    const Deadline deadline = Deadline::After(milliseconds(20'000));
    while (!unfit_ && !deadline.Expired()) loop_.run_one_for(milliseconds(100));
    return unfit_;
  }
  static pb::MeasureRequest Request(const std::vector<std::string>& command) {
    pb::MeasureRequest request;
    request.add_folders()->set_path(::testing::TempDir());
    request.mutable_health()->mutable_argv()->Assign(command.begin(), command.end());
    request.mutable_health()->set_timeout_ms(10'000);
    return request;
  }

  // Runs the loop until abandoned threads have ended, because they use the loop.
  void AwaitThreads() {
    const auto work = asio::make_work_guard(loop_);
    loop_.restart();
    loop_.run_for(milliseconds(1'000));
  }

  asio::io_context loop_;
  NodeCheck check_{loop_};
  std::optional<std::string> unfit_;
};

TEST_F(NodeCheckTest, FindsNothingOnFitNode) { EXPECT_EQ(Run({"true"}, milliseconds(15'000)), ""); }

TEST_F(NodeCheckTest, ReportsFailedHealthCommand) {
  EXPECT_EQ(Run({"false"}, milliseconds(15'000)), "health command: it ended with exit code 1");
}

TEST_F(NodeCheckTest, EndsAtItsLimit) {
  EXPECT_EQ(Run({"sleep", "0.3"}, milliseconds(50)), "its check did not end within 0.05 s");
  AwaitThreads();
}

TEST_F(NodeCheckTest, ForgetsCheckThatIsReplacedOrCancelled) {
  check_.Begin(Request({"false"}), milliseconds(15'000), [](const std::string&) { FAIL(); });
  EXPECT_EQ(Run({"true"}, milliseconds(15'000)), "");
  check_.Begin(Request({"true"}), milliseconds(15'000), [](const std::string&) { FAIL(); });
  check_.Cancel();
  AwaitThreads();
}

TEST(FaultsOfTest, NamesFoldersAndGpusThatCannotBeUsed) {
  pb::NodeMeasurement measured;
  EXPECT_TRUE(FaultsOf(measured, 8).empty());
  pb::FolderSpeed& folder = *measured.add_folders();
  folder.set_path("/logs");
  folder.set_trouble("Read-only file system");
  for (uint32_t index = 0; index < 2; ++index) {
    pb::GpuHealth& gpu = *measured.add_gpus();
    gpu.set_index(index);
    gpu.set_uncorrected_errors(index + 1);
  }
  const std::vector<NodeFault> faults = FaultsOf(measured, 1);
  ASSERT_EQ(faults.size(), 2u) << "the second GPU is not used";
  EXPECT_EQ(faults[0].seen, "nothing could be stored in /logs: Read-only file system");
  EXPECT_THAT(faults[1].seen, StartsWith("GPU 0 has had 1 uncorrected memory error"));
}

}  // namespace
}  // namespace dslaunch::node_check_test
