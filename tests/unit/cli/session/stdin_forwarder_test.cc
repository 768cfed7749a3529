#include "cli/session/stdin_forwarder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "base/deadline.h"

namespace dslaunch::stdin_forwarder_test {
namespace {

class StdinForwarderTest : public testing::Test {
 protected:
  StdinForwarderTest() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    reader_.Reset(fds[0]);
    writer_.Reset(fds[1]);
  }

  void Write(const std::string& text) {
    EXPECT_EQ(::write(writer_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  void RunUntil(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::After(milliseconds(20'000));
    while (!done() && !deadline.Expired()) {
      loop_.restart();
      loop_.run_for(milliseconds(10));
    }
  }

  StdinForwarder Make() {
    return {loop_, reader_.get(),
            [this](const std::string& data, bool end, std::function<void(bool)> then) {
              ++sent_;
              ended_ = ended_ || end;
              if (refuse_ > 0) {
                --refuse_;
                return then(false);
              }
              got_ += data;
              if (!hold_) return then(true);
              held_ = std::move(then);
            },
            [] { ADD_FAILURE() << "a pipe has no Enter"; }};
  }

  asio::io_context loop_;
  UniqueFd reader_, writer_;
  std::string got_;
  int sent_ = 0;
  int refuse_ = 0;
  bool ended_ = false;
  bool hold_ = false;
  std::optional<std::function<void(bool)>> held_;
};

TEST_F(StdinForwarderTest, ReadsNothingBeforeRankRuns) {
  StdinForwarder forwarder = Make();
  Write("first ");
  for (int i = 0; i < 5; ++i) {
    loop_.restart();
    loop_.run_for(milliseconds(5));
  }
  EXPECT_EQ(sent_, 0);
  forwarder.Start();
  RunUntil([this] { return got_ == "first "; });
  Write("second");
  RunUntil([this] { return got_ == "first second"; });
  EXPECT_EQ(got_, "first second");
  writer_.Reset();
  RunUntil([this] { return ended_; });
  EXPECT_TRUE(ended_);
}

TEST_F(StdinForwarderTest, ResendsRefusedInput) {
  refuse_ = 3;
  StdinForwarder forwarder = Make();
  forwarder.Start();
  Write("once");
  RunUntil([this] { return !got_.empty(); });
  EXPECT_EQ(got_, "once");
  EXPECT_EQ(sent_, 4);
}

// The connection to the rank's first node broke, so the answer never arrives.
TEST_F(StdinForwarderTest, RestartedRankReadsOn) {
  hold_ = true;
  StdinForwarder forwarder = Make();
  forwarder.Start();
  Write("lost ");
  RunUntil([this] { return held_.has_value(); });
  forwarder.Stop();
  hold_ = false;
  Write("kept");
  forwarder.Start();
  RunUntil([this] { return got_ == "lost kept"; });
  EXPECT_EQ(got_, "lost kept");
  EXPECT_EQ(::fcntl(reader_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(StdinForwarderTest, WatchReportsInputOnceAndLeavesIt) {
  int reports = 0;
  const StdinWatch watch(loop_, reader_.get(), [&] { ++reports; });
  loop_.run_for(milliseconds(5));
  EXPECT_EQ(reports, 0);
  Write("later");
  RunUntil([&] { return reports > 0; });
  EXPECT_EQ(reports, 1);
  char got[8] = {};
  EXPECT_EQ(::read(reader_.get(), got, sizeof got), 5);
}

TEST_F(StdinForwarderTest, WatchIgnoresEmptyPipe) {
  const StdinWatch watch(loop_, reader_.get(), [] { ADD_FAILURE(); });
  writer_.Reset();
  loop_.run_for(milliseconds(20));
}

}  // namespace
}  // namespace dslaunch::stdin_forwarder_test
