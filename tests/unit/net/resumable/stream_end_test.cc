// Tests that both kinds of stream ends behave in the same way.
#include "net/resumable/stream_end.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <asio/error.hpp>
#include <csignal>
#include <string>
#include <tuple>

#include "base/deadline.h"
#include "base/os/socket_pair.h"

namespace dslaunch::stream_end_test {
namespace {

enum class Kind { kSockets, kWithinTheProcess };

class StreamEndTest : public ::testing::TestWithParam<Kind> {
 protected:
  StreamEndTest() {
    std::signal(SIGPIPE, SIG_IGN);
    if (GetParam() == Kind::kWithinTheProcess) {
      std::tie(a_, b_) = MakeStreamPair(loop_);
    } else {
      SocketPair pair = *MakeSocketPair();
      a_ = MakeStreamEnd(loop_, std::move(pair.ours));
      b_ = MakeStreamEnd(loop_, std::move(pair.theirs));
    }
  }
  void Run() {
    loop_.restart();
    loop_.poll();
  }
  static std::string Read(StreamEnd& end, std::error_code& error) {
    std::string text(1'000, '\0');
    text.resize(end.Read(text.data(), text.size(), error));
    return text;
  }

  asio::io_context loop_{1};
  std::unique_ptr<StreamEnd> a_, b_;
  std::error_code error_;
};

TEST_P(StreamEndTest, DeliversBytesAndEndInEachDirection) {
  EXPECT_EQ(Read(*b_, error_), "");
  EXPECT_TRUE(IsToBeAwaited(error_));
  error_.clear();
  int calls = 0;
  b_->AwaitReadable([&](std::error_code) { ++calls; });
  Run();
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(a_->Write("hello", error_), 5u);
  a_->ShutWrite();
  Run();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Read(*b_, error_), "hello");
  EXPECT_FALSE(error_);
  EXPECT_EQ(Read(*b_, error_), "");
  EXPECT_EQ(error_, asio::error::eof);
  error_.clear();
  EXPECT_EQ(b_->Write("the other way", error_), 13u);
  EXPECT_EQ(Read(*a_, error_), "the other way");
  EXPECT_FALSE(error_);
}

TEST_P(StreamEndTest, BlockedReaderBlocksItsWriter) {
  const std::string block(10'000, 'x');
  size_t written = 0;
  while (!error_ && written < (size_t{8} << 20)) written += a_->Write(block, error_);
  EXPECT_TRUE(IsToBeAwaited(error_));
  EXPECT_LT(written, size_t{4} << 20);
  int calls = 0;
  a_->AwaitWritable([&](std::error_code) { ++calls; });
  Run();
  EXPECT_EQ(calls, 0);
  std::error_code at_b;
  size_t read = 0;
  while (read < written && !at_b) read += Read(*b_, at_b).size();
  EXPECT_EQ(read, written);
  Run();
  EXPECT_EQ(calls, 1);
}

TEST_P(StreamEndTest, DeliversBytesWrittenBeforeClose) {
  EXPECT_EQ(a_->Write("last", error_), 4u);
  int calls = 0;
  b_->AwaitWritable([&](std::error_code) { ++calls; });
  a_.reset();
  Run();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Read(*b_, error_), "last");
  EXPECT_FALSE(error_);
  Read(*b_, error_);
  EXPECT_EQ(error_, asio::error::eof);
  error_.clear();
  b_->Write("too late", error_);
  EXPECT_EQ(error_, asio::error::broken_pipe);
}

TEST_P(StreamEndTest, ShutStillReadsEarlierBytes) {
  EXPECT_EQ(a_->Write("had come", error_), 8u);
  b_->Shut();
  EXPECT_EQ(Read(*b_, error_), "had come");
  EXPECT_FALSE(error_);
  Read(*b_, error_);
  EXPECT_EQ(error_, asio::error::eof);
  error_.clear();
  a_->Write("refused", error_);
  EXPECT_EQ(error_, asio::error::broken_pipe);
  error_.clear();
  Read(*a_, error_);
  EXPECT_EQ(error_, asio::error::eof);
}

TEST_P(StreamEndTest, PendingWaitEndsWithTheOtherEnd) {
  std::shared_ptr<StreamEnd> a = std::move(a_);
  const std::weak_ptr<StreamEnd> watched = a;
  const std::string block(10'000, 'x');
  while (!error_) a->Write(block, error_);
  a->AwaitWritable([a](std::error_code) {});
  a.reset();
  Run();
  EXPECT_FALSE(watched.expired());
  b_.reset();
  Run();
  EXPECT_TRUE(watched.expired());
}

INSTANTIATE_TEST_SUITE_P(, StreamEndTest, testing::Values(Kind::kSockets, Kind::kWithinTheProcess));

}  // namespace
}  // namespace dslaunch::stream_end_test
