// Tests the front end's side of a resumable stream. The test acts as the node.
#include "cli/transport/resumable_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/os/socket_pair.h"
#include "net/resumable/resumable_core.h"
#include "tests/support/timed_read.h"

namespace dslaunch::resumable_link_test {
namespace {

using Ms = milliseconds;

const ResumeTicket kTicket{std::string(32, 'a'), std::string(32, 'b')};

struct FakeLink : NodeLink {
  FakeLink(UniqueFd fd, bool ended, std::atomic<bool>* is_gone = nullptr)
      : fd(std::move(fd)), supervisor_ended(ended), is_gone(is_gone) {}
  ~FakeLink() override {
    if (is_gone != nullptr) *is_gone = true;
  }
  UniqueFd TakeFd() override { return std::move(fd); }
  void Abort(const std::string&) override {}
  bool WaitEnd(Deadline) override { return supervisor_ended; }
  std::string StderrTail() const override { return ""; }
  std::string Address() const override { return "10.0.0.9"; }

  UniqueFd fd;
  const bool supervisor_ended;
  std::atomic<bool>* const is_gone;
};

bool IsAtEnd(int fd, Ms limit) {
  pollfd ready = {fd, POLLIN, 0};
  char byte = 0;
  return poll(&ready, 1, static_cast<int>(limit.count())) > 0 && read(fd, &byte, 1) <= 0;
}

void Write(int fd, const std::string& text) {
  ASSERT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

class ResumableLinkTest : public ::testing::Test {
 protected:
  // Returns a new connection, whose other end is node_.
  std::unique_ptr<NodeLink> Connection(bool ended = false) {
    SocketPair pair = *MakeSocketPair();
    node_ = std::move(pair.ours);
    return std::make_unique<FakeLink>(std::move(pair.theirs), ended, &first_is_gone_);
  }
  void Open(ResumableLink::ReconnectFn reconnect, bool ended = false) {
    std::unique_ptr<NodeLink> first = Connection(ended);
    Write(node_.get(), FormatTicket(kTicket));
    Result<std::unique_ptr<NodeLink>> link =
        ResumableLink::Open(*ResumableLink::Over(std::move(first)), std::move(reconnect));
    ASSERT_TRUE(link.ok()) << link.error().message;
    link_ = *std::move(link);
    front_ = link_->TakeFd();
  }
  std::string ReadAtNode(int fd, size_t size) {
    std::string heard;
    const Deadline deadline = Deadline::After(Ms(5'000));
    while (heard.size() < size && !deadline.Expired()) {
      EXPECT_TRUE(core_.OnBytes(TimedRead(fd, 64 << 10, Ms(20))).ok());
      const std::string arrived = core_.TakeArrived();
      core_.OnDelivered(arrived.size());
      heard += arrived;
    }
    return heard;
  }
  // Reads the request to resume on `fd`, and resumes the stream on it as the node does.
  void ResumeAtNode(int fd) {
    const std::optional<StreamResume> request = ParseRequest(TimedRead(fd, kRequestBytes));
    ASSERT_TRUE(request);
    EXPECT_EQ(request->secret, kTicket.secret);
    ASSERT_TRUE(core_.CanResumeAt(request->received));
    Write(fd, FormatAnswer(core_.received()));
    core_.ResumeAt(request->received);
    Write(fd, core_.TakeFrames());
  }

  std::atomic<bool> first_is_gone_ = false;
  ResumableCore core_;  // resumable stream of the node
  UniqueFd node_;
  UniqueFd front_;
  std::unique_ptr<NodeLink> link_;
};

TEST_F(ResumableLinkTest, LosesNoBytesWhenConnectionsBreak) {
  std::vector<SocketPair> next(3);
  for (SocketPair& pair : next) pair = *MakeSocketPair();
  std::atomic<size_t> used = 0;
  std::atomic<int> refusals = 1;
  Open([&](const std::string& socket, Deadline) -> Result<ResumableLink::Connection> {
    EXPECT_EQ(socket, kTicket.socket);
    if (refusals-- > 0) return Error{ExitCode::kUnavailable, "sshd is busy"};
    return ResumableLink::Over(
        std::make_unique<FakeLink>(std::move(next.at(used++).theirs), /*ended=*/false));
  });
  EXPECT_EQ(link_->Address(), "10.0.0.9");
  Write(front_.get(), "begin");
  EXPECT_EQ(ReadAtNode(node_.get(), 5), "begin");
  for (SocketPair& pair : next) {
    core_.Send("lost on its way");
    core_.TakeFrames();
    node_.Reset();
    Write(front_.get(), "said meanwhile");
    ResumeAtNode(pair.ours.get());
    EXPECT_EQ(TimedRead(front_.get(), 15), "lost on its way");
    EXPECT_EQ(ReadAtNode(pair.ours.get(), 14), "said meanwhile");
    node_ = std::move(pair.ours);
  }
  core_.SendEnd();
  Write(node_.get(), core_.TakeFrames());
  EXPECT_TRUE(IsAtEnd(front_.get(), Ms(2'000)));
}

TEST_F(ResumableLinkTest, ReportsReasonIfReconnectIsRefused) {
  Open([](const std::string&, Deadline) -> Result<ResumableLink::Connection> {
    return Error{ExitCode::kNoPermission, "login refused"};
  });
  node_.Reset();
  EXPECT_TRUE(IsAtEnd(front_.get(), Ms(2'000)));
  EXPECT_FALSE(link_->WaitEnd(Deadline::After(Ms(5'000))));
  EXPECT_EQ(link_->StderrTail(),
            "the connection to it broke and could not be made again: login refused");
  EXPECT_TRUE(first_is_gone_) << "a lost node needs no session";
}

TEST_F(ResumableLinkTest, RetriesAsLongAsNodeWaits) {
  std::atomic<int> tries = 0;
  Open([&](const std::string&, Deadline) -> Result<ResumableLink::Connection> {
    ++tries;
    return Error{ExitCode::kUnavailable, "connection refused"};
  });
  const auto start = Clock::now();
  node_.Reset();
  EXPECT_TRUE(IsAtEnd(front_.get(), Ms(6'000)));
  EXPECT_GE(Clock::now() - start, Ms(2'500));
  EXPECT_GE(tries, 4);
}

TEST_F(ResumableLinkTest, DoesNotReconnectToEndedSupervisor) {
  std::atomic<int> tries = 0;
  Open(
      [&](const std::string&, Deadline) -> Result<ResumableLink::Connection> {
        ++tries;
        return Error{ExitCode::kUnavailable, "the host does not answer"};
      },
      /*ended=*/true);
  node_.Reset();
  EXPECT_TRUE(IsAtEnd(front_.get(), Ms(2'000)));
  EXPECT_TRUE(link_->WaitEnd(Deadline::After(Ms(1'000))));
  EXPECT_EQ(tries, 0);
  EXPECT_EQ(link_->StderrTail(), "");
}

TEST_F(ResumableLinkTest, AbortNotifiesNode) {
  Open([](const std::string&, Deadline) -> Result<ResumableLink::Connection> {
    return Error{ExitCode::kUnavailable, "the host does not answer"};
  });
  link_->Abort("the job has ended");
  EXPECT_TRUE(IsAtEnd(front_.get(), Ms(2'000)));
  EXPECT_TRUE(core_.OnBytes(TimedRead(node_.get(), 5)).ok());
  EXPECT_TRUE(core_.peer_ended());
}

TEST_F(ResumableLinkTest, RejectsStreamWithoutTicket) {
  std::unique_ptr<NodeLink> first = Connection();
  Write(node_.get(), "Welcome to this machine!");
  node_.Reset();
  const Result<std::unique_ptr<NodeLink>> link =
      ResumableLink::Open(*ResumableLink::Over(std::move(first)), {});
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().message,
            "the agent at 10.0.0.9 did not begin its stream after its hello line");
}

}  // namespace
}  // namespace dslaunch::resumable_link_test
