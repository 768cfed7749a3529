// Tests the two ends of a resumable stream on one loop. The test cuts the connection between them
// and loses data in transit.
#include "net/resumable/resumable_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/os/socket_pair.h"

namespace dslaunch::resumable_stream_test {
namespace {

class ResumableStreamTest : public ::testing::Test {
 protected:
  struct End {
    explicit End(asio::io_context& loop) {
      SocketPair pair = *MakeSocketPair();
      outside = std::move(pair.ours);
      fcntl(outside.get(), F_SETFL, O_NONBLOCK);
      stream.emplace(
          loop, std::move(pair.theirs),
          ResumableStream::Handlers{.on_broken = [this](const std::string&) { ++broken; },
                                    .on_all_sent = [this] { ++all_sent; }});
    }
    UniqueFd outside;  // the other end of the stream's local socket
    std::optional<ResumableStream> stream;
    int broken = 0;
    int all_sent = 0;
  };

  // Connects both ends through the test, which carries the bytes itself, so that it can lose some
  // of them.
  void Connect() {
    SocketPair a = *MakeSocketPair();
    SocketPair b = *MakeSocketPair();
    at_a_ = std::move(a.theirs);
    at_b_ = std::move(b.theirs);
    for (const UniqueFd* fd : {&at_a_, &at_b_}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    if (!is_connected_) {
      a_.stream->Connect(MakeStreamEnd(loop_, std::move(a.ours)));
      b_.stream->Connect(MakeStreamEnd(loop_, std::move(b.ours)));
    } else {
      const uint64_t a_has = a_.stream->received();
      const uint64_t b_has = b_.stream->received();
      ASSERT_TRUE(a_.stream->CanResumeAt(b_has));
      ASSERT_TRUE(b_.stream->CanResumeAt(a_has));
      a_.stream->ResumeAt(b_has, MakeStreamEnd(loop_, std::move(a.ours)));
      b_.stream->ResumeAt(a_has, MakeStreamEnd(loop_, std::move(b.ours)));
    }
    is_connected_ = true;
  }
  void Cut() {
    at_a_.Reset();
    at_b_.Reset();
    Run();
  }
  void Run() {
    loop_.restart();
    loop_.poll();
  }
  static std::string Read(const UniqueFd& fd) {
    std::string text(64 << 10, '\0');
    const ssize_t n = read(fd.get(), text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  static bool IsAtEnd(const UniqueFd& fd) {
    char byte = 0;
    return read(fd.get(), &byte, 1) == 0;
  }
  void Carry() {
    Run();
    for (const auto& [from, to] : {std::pair(&at_a_, &at_b_), std::pair(&at_b_, &at_a_)}) {
      const std::string bytes = Read(*from);
      ASSERT_EQ(write(to->get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    Run();
  }

  asio::io_context loop_{1};
  End a_{loop_};
  End b_{loop_};
  UniqueFd at_a_, at_b_;
  bool is_connected_ = false;
};

TEST_F(ResumableStreamTest, ManyCutsNeitherLoseNorDuplicateBytes) {
  Connect();
  std::string sent;
  std::string got;
  for (int i = 0; i < 200; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    ASSERT_EQ(write(a_.outside.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    sent += line;
    if (i % 3 == 0)
      Run();  // the bytes stay in transit and are lost
    else
      Carry();
    if (i % 5 == 0) {
      Cut();
      Connect();
    }
    got += Read(b_.outside);
  }
  Carry();
  got += Read(b_.outside);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(a_.broken, 40);
  EXPECT_EQ(b_.broken, 40);
}

TEST_F(ResumableStreamTest, TransfersMoreThanOneWindow) {
  Connect();
  const std::string block(32 << 10, 'x');
  size_t sent = 0;
  size_t got = 0;
  const Deadline deadline = Deadline::After(milliseconds(20'000));
  while (got < 3 * ResumableCore::kWindow && !deadline.Expired()) {
    if (const ssize_t n = write(a_.outside.get(), block.data(), block.size()); n > 0)
      sent += static_cast<size_t>(n);
    Carry();
    got += Read(b_.outside).size();
  }
  EXPECT_GE(sent, got);
  EXPECT_GE(got, 3 * ResumableCore::kWindow);
}

TEST_F(ResumableStreamTest, PassesEndOnAndNeedsNoConnectionAfterIt) {
  Connect();
  ASSERT_EQ(write(a_.outside.get(), "last", 4), 4);
  shutdown(a_.outside.get(), SHUT_WR);
  Carry();
  EXPECT_EQ(Read(b_.outside), "last");
  EXPECT_TRUE(IsAtEnd(b_.outside));
  EXPECT_EQ(a_.all_sent, 1);
  EXPECT_EQ(b_.all_sent, 0);
  Cut();
  EXPECT_EQ(b_.broken, 0) << "a said that it had ended";
  EXPECT_EQ(a_.broken, 1) << "b did not";
}

TEST_F(ResumableStreamTest, SendsEndOnTheNextConnection) {
  Connect();
  Cut();
  shutdown(a_.outside.get(), SHUT_WR);
  Run();
  EXPECT_EQ(a_.all_sent, 0);
  Connect();
  Carry();
  EXPECT_EQ(a_.all_sent, 1);
  EXPECT_TRUE(IsAtEnd(b_.outside));
}

TEST_F(ResumableStreamTest, CloseEndsTheLocalSide) {
  Connect();
  ASSERT_EQ(write(a_.outside.get(), "got", 3), 3);
  Carry();
  Cut();
  ASSERT_EQ(write(b_.outside.get(), "never", 5), 5);
  b_.stream->Close();
  Run();
  EXPECT_EQ(Read(b_.outside), "got");
  EXPECT_TRUE(IsAtEnd(b_.outside));
  EXPECT_EQ(b_.all_sent, 1) << "nobody waits for what cannot be sent";
  EXPECT_FALSE(b_.stream->CanResumeAt(0));
}

TEST_F(ResumableStreamTest, CannotResumeAfterProtocolError) {
  Connect();
  ASSERT_EQ(write(at_a_.get(), "nonsense that is no frame", 25), 25);
  Run();
  EXPECT_TRUE(IsAtEnd(a_.outside));
  EXPECT_EQ(a_.broken, 0);
  EXPECT_FALSE(a_.stream->CanResumeAt(0));
}

TEST(ResumableStreamEndTest, DestructorClosesTheConnection) {
  asio::io_context loop;
  SocketPair local = *MakeSocketPair(), connection = *MakeSocketPair();
  {
    ResumableStream stream(loop, std::move(local.theirs), {});
    stream.Connect(MakeStreamEnd(loop, std::move(connection.theirs)));
    loop.poll();
  }
  char byte = 0;
  EXPECT_EQ(recv(connection.ours.get(), &byte, 1, MSG_DONTWAIT), 0) << "it is open";
  loop.restart();
  loop.run_for(milliseconds(1'000));
  EXPECT_TRUE(loop.stopped()) << "an operation is left";
}

}  // namespace
}  // namespace dslaunch::resumable_stream_test
