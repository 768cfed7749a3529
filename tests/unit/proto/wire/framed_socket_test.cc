#include "proto/wire/framed_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <random>
#include <thread>

#include "base/deadline.h"
#include "proto/supervisor.pb.h"
#include "tests/support/own_memory.h"

#ifdef DSLAUNCH_SANITIZED
// Limits AddressSanitizer's quarantine, because freed memory in it would be counted as memory of
// the queue.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=8"; }
#endif

namespace dslaunch::framed_socket_test {
namespace {

// A FramedSocket, and the other end of its socket without framing.
struct Pair {
  asio::io_context io{1};
  UniqueFd raw;
  std::vector<std::string> messages;
  std::optional<std::string> closed;
  std::unique_ptr<FramedSocket> framed;

  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    raw.Reset(fds[0]);
    framed = std::make_unique<FramedSocket>(
        io, UniqueFd(fds[1]), [this](std::string_view bytes) { messages.emplace_back(bytes); },
        [this](const std::string& reason) {
          EXPECT_FALSE(closed) << "closed twice";
          closed = reason;
        });
  }

  void Put(const std::string& bytes) {
    ASSERT_EQ(send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    Turn();
  }
  void Turn() { io.poll(); }
  // Reads `bytes` bytes from the raw end while the loop runs. Returns fewer if they do not arrive
  // in time.
  std::string Take(size_t bytes) {
    std::string got;
    const Deadline deadline = Deadline::After(milliseconds(10'000));
    while (got.size() < bytes && !deadline.Expired()) {
      std::string chunk(std::min(bytes - got.size(), size_t{1} << 20), '\0');
      const ssize_t n = recv(raw.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (n > 0) got.append(chunk, 0, static_cast<size_t>(n));
      Turn();
    }
    return got;
  }
};

std::string Frame(const std::string& payload) {
  const auto n = static_cast<uint32_t>(payload.size());
  std::string frame = {static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 24)};
  return frame + payload;
}

pb::StatusBytes Message(size_t bytes) {
  pb::StatusBytes message;
  message.set_data(std::string(bytes, 'x'));
  return message;
}

TEST(FramedSocket, ReassemblesMessagesFromAnyChunks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::string> sent;
  std::string stream;
  for (int i = 0; i < 100; ++i) {
    sent.push_back(std::string(random() % 3000, static_cast<char>('a' + i % 26)));
    stream += Frame(sent.back());
  }
  Pair pair;
  for (size_t at = 0; at < stream.size();) {
    const size_t bytes = 1 + random() % 7000;
    pair.Put(stream.substr(at, bytes));
    at += bytes;
  }
  EXPECT_EQ(pair.messages, sent);
  EXPECT_FALSE(pair.closed);
}

TEST(FramedSocket, ReassemblesMessagesFromSingleBytes) {
  Pair pair;
  for (const char byte : Frame("hello") + Frame("")) pair.Put(std::string(1, byte));
  EXPECT_EQ(pair.messages, (std::vector<std::string>{"hello", ""}));
}

TEST(FramedSocket, WritesTheLengthInLittleEndian) {
  Pair pair;
  pb::StatusBytes message = Message(300);
  ASSERT_TRUE(pair.framed->Send(message));
  EXPECT_EQ(pair.Take(4 + message.ByteSizeLong()), Frame(message.SerializeAsString()));
}

TEST(FramedSocket, QueuesForASlowReaderAndDeliversAll) {
  Pair pair;
  const pb::StatusBytes message = Message(1 << 20);
  std::string expected;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair.framed->Send(message));
    expected += Frame(message.SerializeAsString());
  }
  EXPECT_GT(pair.framed->queued_bytes(), size_t{10} << 20);
  EXPECT_TRUE(pair.Take(expected.size()) == expected);
  EXPECT_EQ(pair.framed->queued_bytes(), 0u);
}

TEST(FramedSocket, ClosesWhenTheReaderIsTooFarBehind) {
  Pair pair;
  const pb::StatusBytes message = Message(8 << 20);
  int accepted = 0;
  while (accepted < 100 && pair.framed->Send(message)) ++accepted;
  EXPECT_GE(accepted, 7);
  EXPECT_LE(accepted, 9);
  EXPECT_FALSE(pair.closed) << "on_closed was called from inside Send";
  pair.Turn();
  ASSERT_TRUE(pair.closed);
  EXPECT_NE(pair.closed->find("64 MiB"), std::string::npos) << *pair.closed;
  EXPECT_FALSE(pair.framed->Send(Message(1)));
}

TEST(FramedSocket, RefusesToSendAMessageAboveTheLimit) {
  Pair pair;
  EXPECT_FALSE(pair.framed->Send(Message(kMaxFrameBytes + 1)));
  pair.Turn();
  ASSERT_TRUE(pair.closed);
}

TEST(FramedSocket, AcceptsLargestMessageAndRejectsLarger) {
  Pair pair;
  const std::string largest(kMaxFrameBytes, 'y');
  const std::string frame = Frame(largest);
  for (size_t at = 0; at < frame.size(); at += 100'000) pair.Put(frame.substr(at, 100'000));
  ASSERT_EQ(pair.messages.size(), 1u);
  EXPECT_TRUE(pair.messages[0] == largest);
  pair.Put(std::string("\x01\x00\x00\x01", 4));
  ASSERT_TRUE(pair.closed);
  EXPECT_NE(pair.closed->find("16777217"), std::string::npos) << *pair.closed;
}

TEST(FramedSocket, DistinguishesEndInsideAMessage) {
  Pair clean;
  clean.Put(Frame("last"));
  clean.raw.Reset();
  clean.Turn();
  EXPECT_EQ(clean.messages, std::vector<std::string>{"last"});
  EXPECT_EQ(clean.closed, "end of file");
  Pair cut;
  cut.Put(Frame("whole").substr(0, 6));
  cut.raw.Reset();
  cut.Turn();
  EXPECT_EQ(cut.closed, "end of file inside a message");
}

TEST(FramedSocket, ReadsMessagesSentBeforeThePeerClosed) {
  Pair pair;
  const std::string last = Frame("last words");
  ASSERT_EQ(send(pair.raw.get(), last.data(), last.size(), 0), static_cast<ssize_t>(last.size()));
  pair.raw.Reset();
  pair.framed->Send(Message(10));  // fails with EPIPE while there is still data to read
  pair.Turn();
  EXPECT_EQ(pair.messages, std::vector<std::string>{"last words"});
  EXPECT_TRUE(pair.closed);
}

TEST(FramedSocket, CanBeDestroyedInItsOwnCallback) {
  Pair pair;
  int seen = 0;
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd raw(fds[0]);
  std::unique_ptr<FramedSocket> framed;
  framed = std::make_unique<FramedSocket>(
      pair.io, UniqueFd(fds[1]),
      [&](std::string_view) {
        ++seen;
        framed.reset();
      },
      [](const std::string&) { FAIL() << "its owner knows"; });
  const std::string two = Frame("one") + Frame("two");
  ASSERT_EQ(send(raw.get(), two.data(), two.size(), 0), static_cast<ssize_t>(two.size()));
  pair.Turn();
  EXPECT_EQ(seen, 1);
}

TEST(FramedSocket, SendsFromAnotherThreadWhileLoopIsBlocked) {
  Pair pair;
  std::thread([&] { EXPECT_TRUE(pair.framed->Send(Message(10))); }).join();
  char bytes[100];
  EXPECT_GT(recv(pair.raw.get(), bytes, sizeof bytes, MSG_DONTWAIT), 10);
}

TEST(FramedSocket, ThreadsSendWholeMessagesToASlowReader) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  Pair pair;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(pair.framed->Send(Message(20'000)));
    });
  }
  const std::string one = Frame(Message(20'000).SerializeAsString());
  std::string all;
  for (int i = 0; i < kThreads * kEach; ++i) all += one;
  EXPECT_TRUE(pair.Take(all.size()) == all);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pair.framed->queued_bytes(), 0u);
}

// The reader is always behind, so the queue is never empty. The queue must still release the memory
// of written data.
TEST(FramedSocketTest, QueueThatIsNeverEmptyDoesNotGrow) {
  Pair pair;
  pb::SupervisorEvent event;
  event.mutable_status()->set_data(std::string(4'000, 'x'));
  while (pair.framed->queued_bytes() < 1 << 20) ASSERT_TRUE(pair.framed->Send(event));
  const int64_t before_kib = OwnMemoryKib("VmRSS");
  size_t taken = 0;
  while (taken < size_t{256} << 20) {
    while (pair.framed->queued_bytes() < 1 << 20) ASSERT_TRUE(pair.framed->Send(event));
    taken += pair.Take(64 << 10).size();
    ASSERT_GT(pair.framed->queued_bytes(), 0u);
  }
  EXPECT_LT(OwnMemoryKib("VmRSS"), before_kib + (64 << 10));
}

}  // namespace
}  // namespace dslaunch::framed_socket_test
