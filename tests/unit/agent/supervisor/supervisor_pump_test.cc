// Tests the byte stream through a whole supervisor, from front end to agent and back.
#include "agent/supervisor/supervisor_pump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/unit/agent/supervisor/supervisor_harness.h"

namespace dslaunch::supervisor_pump_test {
namespace {

using Ms = milliseconds;

// Fills a buffer with bytes that depend on the offset and do not repeat within any buffer.
void FillPattern(uint64_t offset, char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t x = (offset + i) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    std::memcpy(data + i, &x, std::min<size_t>(8, bytes - i));
  }
}

bool WriteAll(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// An agent that returns every byte and exits at end of file.
int Echo(int grpc_fd, int) {
  std::vector<char> buffer(256 << 10);
  while (true) {
    const ssize_t n = read(grpc_fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? 0 : 1;
    if (!WriteAll(grpc_fd, buffer.data(), static_cast<size_t>(n))) return 2;
  }
}

// Sends `total` bytes of the pattern and then end of file, and checks the returned bytes. Returns
// the time taken.
Ms RoundTrip(SupervisorHarness& supervisor, size_t total) {
  constexpr size_t kChunk = 256 << 10;
  const auto start = Clock::now();
  std::thread writer([&] {
    std::vector<char> chunk(kChunk);
    for (size_t at = 0; at < total; at += kChunk) {
      const size_t bytes = std::min(kChunk, total - at);
      FillPattern(at, chunk.data(), bytes);
      if (!WriteAll(supervisor.in(), chunk.data(), bytes)) return;
    }
    supervisor.CloseIn();
  });
  std::vector<char> got(kChunk), expected(kChunk);
  size_t at = 0;
  bool same = true;
  while (true) {
    // Whole chunks are read, so that the pattern is compared at aligned offsets.
    size_t have = 0;
    while (have < kChunk) {
      const ssize_t n = read(supervisor.out(), got.data() + have, kChunk - have);
      if (n <= 0) break;
      have += static_cast<size_t>(n);
    }
    if (have == 0) break;
    FillPattern(at, expected.data(), have);
    same = same && std::memcmp(got.data(), expected.data(), have) == 0;
    at += have;
    if (have < kChunk) break;
  }
  const auto took = std::chrono::duration_cast<Ms>(Clock::now() - start);
  writer.join();
  EXPECT_EQ(at, total);
  EXPECT_TRUE(same) << "bytes were changed";
  return took;
}

class SupervisorPumpTest : public testing::TestWithParam<bool> {};

TEST_P(SupervisorPumpTest, Carries200MegabytesEachWayByteForByte) {
  SupervisorHarness supervisor(
      SupervisorHarness::Setup{.one_socket = GetParam(), .run_agent = Echo});
  const Ms took = RoundTrip(supervisor, 200'000'000);
  RecordProperty("ms", static_cast<int>(took.count()));
  EXPECT_LT(took, Ms(20'000));  // a loose limit, because test machines are busy
  EXPECT_EQ(supervisor.WaitEnd(), 0);
}

TEST_P(SupervisorPumpTest, EndOfFileFollowsTheLastByte) {
  SupervisorHarness supervisor(
      SupervisorHarness::Setup{.one_socket = GetParam(), .run_agent = Echo});
  RoundTrip(supervisor, 1'000'003);
  EXPECT_EQ(supervisor.WaitEnd(Ms(1000)), 0);
}

INSTANTIATE_TEST_SUITE_P(PipesAndOneSocket, SupervisorPumpTest, testing::Bool());

TEST(SupervisorPump, StalledReaderCostsNoCpuTime) {
  SupervisorHarness supervisor(SupervisorHarness::Setup{.run_agent = [](int grpc_fd, int) {
    std::vector<char> noise(1 << 20, 'x');
    while (WriteAll(grpc_fd, noise.data(), noise.size())) {
    }
    return 0;
  }});
  // After this pause, every buffer between agent and front end is full.
  std::this_thread::sleep_for(Ms(300));
  const Ms before = CpuTime(supervisor.supervisor());
  std::this_thread::sleep_for(Ms(1000));
  EXPECT_LE((CpuTime(supervisor.supervisor()) - before).count(), 20);
}

TEST(SupervisorPump, EndOfOneDirectionLeavesTheOtherOpen) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(1000));
  ASSERT_EQ(shutdown(supervisor.grpc(), SHUT_WR), 0);  // the agent sends nothing more
  EXPECT_EQ(ReadUntilEnd(supervisor.out(), Ms(2000)), "");
  ASSERT_EQ(write(supervisor.in(), "still", 5), 5);
  char text[6] = {};
  ASSERT_EQ(read(supervisor.grpc(), text, 5), 5);
  EXPECT_STREQ(text, "still");
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
}

}  // namespace
}  // namespace dslaunch::supervisor_pump_test
