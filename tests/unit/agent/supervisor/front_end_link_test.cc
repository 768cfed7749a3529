// Tests a whole supervisor whose connection to the front end breaks. The test acts as the front
// end.
#include "agent/supervisor/front_end_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "agent/supervisor/resume_socket.h"
#include "net/resumable/resumable_core.h"
#include "net/resumable/resume_words.h"
#include "tests/support/timed_read.h"
#include "tests/unit/agent/supervisor/supervisor_harness.h"

namespace dslaunch::front_end_link_test {
namespace {

using Ms = milliseconds;

void Write(int fd, const std::string& text) {
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

class FrontEndLinkTest : public ::testing::Test {
 protected:
  FrontEndLinkTest() {
    ticket_ = ParseTicket(TimedRead(supervisor_.out(), kTicketBytes)).value_or(ResumeTicket());
    supervisor_.Configure(Ms(500));
  }

  void Cut() {
    supervisor_.CloseIn();
    supervisor_.CloseOut();
    connection_.Reset();
  }
  // Returns whether the supervisor reports its connection as broken; nullopt if it reports the
  // front end's end instead.
  std::optional<bool> NextConnection() {
    const std::optional<pb::SupervisorEvent> event = supervisor_.NextOutcome();
    if (!event || !event->has_front_end_connection()) return std::nullopt;
    return event->front_end_connection().is_broken();
  }
  // Reconnects with this secret and position. Returns false if the request was rejected.
  bool Resume(const std::string& secret, uint64_t received) {
    UniqueFd fd = ConnectToResume(ticket_.socket);
    if (!fd) return false;
    const std::string request = FormatRequest({secret, received});
    if (write(fd.get(), request.data(), request.size()) < 0) return false;
    const std::optional<uint64_t> answer = ParseAnswer(TimedRead(fd.get(), kAnswerBytes));
    if (!answer || !core_.CanResumeAt(*answer)) return false;
    connection_ = std::move(fd);
    core_.ResumeAt(*answer);
    Write(connection_.get(), core_.TakeFrames());
    return true;
  }
  // Returns up to `size` bytes that the agent's side has sent, as the front end receives them.
  std::string ReadBytes(int fd, size_t size) {
    std::string heard;
    const Deadline deadline = Deadline::After(Ms(5'000));
    while (heard.size() < size && !deadline.Expired()) {
      const std::string frames = TimedRead(fd, 64 << 10, Ms(20));
      EXPECT_TRUE(core_.OnBytes(frames).ok());
      const std::string arrived = core_.TakeArrived();
      core_.OnDelivered(arrived.size());
      heard += arrived;
    }
    return heard;
  }
  void WriteBytes(int fd, const std::string& text) {
    core_.Send(text);
    Write(fd, core_.TakeFrames());
  }

  SupervisorHarness supervisor_{{.resumable = true, .run_agent = {}}};
  ResumeTicket ticket_;
  ResumableCore core_;
  UniqueFd connection_;
};

TEST_F(FrontEndLinkTest, ResumesRepeatedlyWithoutLoss) {
  WriteBytes(supervisor_.in(), "to the agent");
  EXPECT_EQ(TimedRead(supervisor_.grpc(), 12), "to the agent");
  Write(supervisor_.grpc(), "first ");
  EXPECT_EQ(ReadBytes(supervisor_.out(), 6), "first ");
  for (int i = 0; i < 3; ++i) {
    core_.Send("lost");  // lost when the connection breaks
    core_.TakeFrames();
    Cut();
    EXPECT_EQ(NextConnection(), true);
    Write(supervisor_.grpc(), "without a front end: ");
    ASSERT_TRUE(Resume(ticket_.secret, core_.received()));
    EXPECT_EQ(NextConnection(), false);
    EXPECT_EQ(ReadBytes(connection_.get(), 21), "without a front end: ");
    EXPECT_EQ(TimedRead(supervisor_.grpc(), 4), "lost");
    Write(supervisor_.grpc(), "alive");
    EXPECT_EQ(ReadBytes(connection_.get(), 5), "alive");
  }
  // The connection can still end normally.
  core_.SendEnd();
  Write(connection_.get(), core_.TakeFrames());
  const auto event = supervisor_.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  supervisor_.EndAgent(0);
  EXPECT_EQ(supervisor_.WaitEnd(), 0);
}

TEST_F(FrontEndLinkTest, AcceptsNoConnectionBeforeTheFirstOneBreaks) {
  EXPECT_FALSE(ConnectToResume(ticket_.socket).valid());
  Cut();
  EXPECT_EQ(NextConnection(), true);
  EXPECT_TRUE(ConnectToResume(ticket_.socket).valid());
}

TEST_F(FrontEndLinkTest, ResumesWhileTheOldConnectionLooksAlive) {
  Cut();
  EXPECT_EQ(NextConnection(), true);
  ASSERT_TRUE(Resume(ticket_.secret, 0));
  const UniqueFd before = std::move(connection_);
  ASSERT_TRUE(Resume(ticket_.secret, 0));
  Write(supervisor_.grpc(), "here");
  EXPECT_EQ(ReadBytes(connection_.get(), 4), "here");
  // The old connection carries the first acknowledgement and then end of file.
  EXPECT_EQ(TimedRead(before.get(), 100, Ms(2'000)).size(), 13u);
}

TEST_F(FrontEndLinkTest, RejectsWrongSecretOrPosition) {
  Write(supervisor_.grpc(), "text");
  EXPECT_EQ(ReadBytes(supervisor_.out(), 4), "text");
  Cut();
  EXPECT_EQ(NextConnection(), true);
  EXPECT_FALSE(Resume(std::string(32, '0'), 4));
  EXPECT_FALSE(Resume("", 4)) << "it hears no whole request";
  EXPECT_FALSE(Resume(ticket_.secret, 5)) << "it has not sent so much";
  EXPECT_TRUE(Resume(ticket_.secret, 4));
}

TEST_F(FrontEndLinkTest, EndsAtOnceIfFrontEndIsKnownToBeDead) {
  supervisor_.StartWorkers(2, {"--sleep-ms", "600000"});
  const auto start = Clock::now();
  Cut();
  EXPECT_EQ(NextConnection(), true);
  pb::SupervisorRequest request;
  request.mutable_no_front_end();
  supervisor_.Send(request);
  const auto event = supervisor_.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  EXPECT_FALSE(Resume(ticket_.secret, 0)) << "it is too late";
  supervisor_.EndAgent(0);
  EXPECT_EQ(supervisor_.WaitEnd(), 0);
  EXPECT_LT(Clock::now() - start, Ms(3'000));
  EXPECT_TRUE(supervisor_.IsEmpty());
}

TEST_F(FrontEndLinkTest, EndsIfFrontEndDoesNotReturn) {
  supervisor_.StartWorkers(2, {"--sleep-ms", "600000"});
  const auto start = Clock::now();
  Cut();
  EXPECT_EQ(NextConnection(), true);
  const auto event = supervisor_.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  EXPECT_GE(Clock::now() - start, Ms(3'900));
  EXPECT_LT(Clock::now() - start, Ms(6'000));
  supervisor_.EndAgent(0);
  EXPECT_EQ(supervisor_.WaitEnd(), 0);
  EXPECT_TRUE(supervisor_.IsEmpty());
}

TEST_F(FrontEndLinkTest, DeliversAgentsLastBytesBeforeItEnds) {
  const std::string last(1 << 20, 'x');
  std::thread agent([&] {
    Write(supervisor_.grpc(), last);
    supervisor_.EndAgent(0);
  });
  EXPECT_EQ(ReadBytes(supervisor_.out(), last.size()), last);
  EXPECT_TRUE(core_.OnBytes(TimedRead(supervisor_.out(), 5)).ok());
  EXPECT_TRUE(core_.peer_ended());
  agent.join();
  EXPECT_EQ(supervisor_.WaitEnd(), 0);
}

}  // namespace
}  // namespace dslaunch::front_end_link_test
