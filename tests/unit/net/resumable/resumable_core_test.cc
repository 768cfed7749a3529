// Tests the two ends of a resumable stream. The test itself is the connection between them.
#include "net/resumable/resumable_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace dslaunch::resumable_core_test {
namespace {

constexpr size_t kWindow = ResumableCore::kWindow;

std::string Frame(char kind, const std::string& content) {
  const size_t size = content.size();
  return std::string{kind, static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                     static_cast<char>(size >> 8), static_cast<char>(size)} +
         content;
}

std::string Receipt(char number) { return Frame('A', std::string(7, '\0') + number); }

// Passes bytes to an end. Returns the data that arrived, and marks it as delivered.
std::string Deliver(ResumableCore& to, const std::string& bytes) {
  const Result<void> taken = to.OnBytes(bytes);
  EXPECT_TRUE(taken.ok()) << taken.error().message;
  std::string arrived = to.TakeArrived();
  to.OnDelivered(arrived.size());
  return arrived;
}

// Makes a new connection, on which each end reports the number of bytes that it has received.
void Reconnect(ResumableCore& a, ResumableCore& b) {
  const uint64_t a_has = a.received();
  const uint64_t b_has = b.received();
  ASSERT_TRUE(a.CanResumeAt(b_has));
  ASSERT_TRUE(b.CanResumeAt(a_has));
  a.ResumeAt(b_has);
  b.ResumeAt(a_has);
}

TEST(ResumableCoreTest, KeepsByteOrderHoweverFramesAreSplit) {
  ResumableCore a;
  ResumableCore b;
  a.Send("hello ");
  a.Send("world");
  std::string arrived;
  for (const char byte : a.TakeFrames()) arrived += Deliver(b, std::string(1, byte));
  EXPECT_EQ(arrived, "hello world");
  EXPECT_FALSE(b.peer_ended());
  a.SendEnd();
  a.SendEnd();
  Deliver(b, a.TakeFrames());
  EXPECT_TRUE(b.peer_ended());
  EXPECT_EQ(a.Room(), 0u);
}

TEST(ResumableCoreTest, ResendsExactlyTheLostBytes) {
  ResumableCore a;
  ResumableCore b;
  std::string sent;
  std::string arrived;
  for (size_t i = 0; i < 300; ++i) {
    const std::string piece(1 + i * 37 % 1'000, static_cast<char>('a' + i % 26));
    a.Send(piece);
    sent += piece;
    const std::string frames = a.TakeFrames();
    // The connection breaks at any position in a frame.
    const size_t lost = i % 3 == 0 ? frames.size() * (i % 7) / 6 : 0;
    arrived += Deliver(b, frames.substr(0, frames.size() - lost));
    if (i % 3 != 0) continue;
    Reconnect(a, b);
    arrived += Deliver(b, a.TakeFrames());
    Deliver(a, b.TakeFrames());
  }
  EXPECT_EQ(arrived, sent);
}

TEST(ResumableCoreTest, ResendsALostEnd) {
  ResumableCore a;
  ResumableCore b;
  a.Send("last");
  a.SendEnd();
  a.TakeFrames();
  Reconnect(a, b);
  EXPECT_EQ(Deliver(b, a.TakeFrames()), "last");
  EXPECT_TRUE(b.peer_ended());
  Reconnect(a, b);
  EXPECT_EQ(Deliver(b, a.TakeFrames()), "") << "it may be said twice";
  EXPECT_TRUE(b.peer_ended());
}

TEST(ResumableCoreTest, BlockedReaderStopsOnlyItsOwnDirection) {
  ResumableCore a;
  ResumableCore b;
  size_t sent = 0;
  while (a.Room() > 0) {
    const size_t bytes = std::min<size_t>(a.Room(), 100'000);
    a.Send(std::string(bytes, 'x'));
    sent += bytes;
  }
  EXPECT_EQ(sent, kWindow);
  ASSERT_TRUE(b.OnBytes(a.TakeFrames()).ok());
  const std::string arrived = b.TakeArrived();
  EXPECT_EQ(arrived.size(), kWindow);
  b.Send("the other way");
  EXPECT_EQ(Deliver(a, b.TakeFrames()), "the other way");
  EXPECT_EQ(a.Room(), 0u) << "nothing is delivered";
  b.OnDelivered(kWindow);
  Deliver(a, b.TakeFrames());
  EXPECT_EQ(a.Room(), kWindow);
}

TEST(ResumableCoreTest, ReconnectionDoesNotEnlargeTheWindow) {
  ResumableCore a;
  ResumableCore b;
  a.Send(std::string(kWindow, 'x'));
  ASSERT_TRUE(b.OnBytes(a.TakeFrames()).ok());
  Reconnect(a, b);
  Deliver(a, b.TakeFrames());
  EXPECT_EQ(a.Room(), 0u);
}

TEST(ResumableCoreTest, ResendsALostAcknowledgement) {
  ResumableCore a;
  ResumableCore b;
  a.Send(std::string(kWindow, 'x'));
  Deliver(b, a.TakeFrames());
  b.TakeFrames();  // drops the acknowledgement
  EXPECT_EQ(a.Room(), 0u);
  Reconnect(a, b);
  Deliver(a, b.TakeFrames());
  EXPECT_EQ(a.Room(), kWindow);
}

TEST(ResumableCoreTest, DiscardsDeliveredBytes) {
  ResumableCore a;
  ResumableCore b;
  uint64_t sent = 0;
  for (; sent < (64 << 10); sent += 100) {
    a.Send(std::string(100, 'x'));
    Deliver(b, a.TakeFrames());
    Deliver(a, b.TakeFrames());
  }
  EXPECT_FALSE(a.CanResumeAt(sent - (2 << 10))) << "all nodes together would fill the memory";
}

TEST(ResumableCoreTest, ResumesOnlyAtBufferedPositions) {
  ResumableCore a;
  a.Send("12345");
  EXPECT_TRUE(a.CanResumeAt(0));
  EXPECT_TRUE(a.CanResumeAt(5));
  EXPECT_FALSE(a.CanResumeAt(6)) << "it was never sent";
  ASSERT_TRUE(a.OnBytes(Receipt(3)).ok());
  EXPECT_FALSE(a.CanResumeAt(2)) << "it was said to be delivered, and is not kept";
  EXPECT_TRUE(a.CanResumeAt(3));
  a.ResumeAt(4);
  EXPECT_FALSE(a.CanResumeAt(3));
}

TEST(ResumableCoreTest, ReportsProtocolViolations) {
  const auto error = [](const std::string& bytes) {
    ResumableCore core;
    core.Send("12345");
    const Result<void> taken = core.OnBytes(bytes);
    return taken.ok() ? "" : taken.error().message;
  };
  EXPECT_EQ(error(Frame('D', "fine") + Receipt(5)), "");
  EXPECT_EQ(error(Receipt(6)), "an acknowledgement of bytes that were not sent");
  EXPECT_EQ(error(Receipt(3) + Receipt(2)), "an acknowledgement of bytes that were not sent");
  EXPECT_EQ(error(Frame('E', "") + Frame('D', "x")), "data after the end of its stream");
  EXPECT_EQ(error(std::string("D\x7f\xff\xff\xff", 5)), "a frame of 2147483647 bytes");
  EXPECT_EQ(error(Frame('E', "x")), "a frame of unknown type");
  EXPECT_EQ(error(Frame('A', "short")), "a frame of unknown type");
  EXPECT_EQ(error(Frame('?', "")), "a frame of unknown type");
  std::string flood;
  for (size_t i = 0; i <= kWindow / ResumableCore::kMostInFrame; ++i)
    flood += Frame('D', std::string(ResumableCore::kMostInFrame, 'x'));
  EXPECT_EQ(error(flood), "more than its window");
}

}  // namespace
}  // namespace dslaunch::resumable_core_test
