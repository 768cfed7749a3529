// Tests the pump over a real sshd: every byte arrives, memory and processor time stay small, and
// the pump always ends.
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cli/transport/ssh/transport_ssh.h"
#include "tests/hosts/ssh/sshd_fixture.h"
#include "tests/support/own_memory.h"

namespace dslaunch {
namespace {

using testing::HasSubstr;

constexpr milliseconds kPlenty{20000};

// A pseudorandom stream of bytes that the receiver can reproduce.
class Pattern {
 public:
  void Fill(char* out, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      if (left_ == 0) {
        state_ += 0x9e3779b97f4a7c15u;
        word_ = (state_ ^ (state_ >> 31)) * 0xbf58476d1ce4e5b9u;
        left_ = 8;
      }
      out[i] = static_cast<char>(word_);
      word_ >>= 8;
      --left_;
    }
  }

 private:
  uint64_t state_ = 1;
  uint64_t word_ = 0;
  int left_ = 0;
};

bool SendPattern(int fd, size_t total) {
  Pattern pattern;
  std::vector<char> chunk(100'000);
  for (size_t done = 0; done < total;) {
    const size_t size = std::min(chunk.size(), total - done);
    pattern.Fill(chunk.data(), size);
    for (size_t at = 0; at < size;) {
      const ssize_t n = ::send(fd, chunk.data() + at, size - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    done += size;
  }
  return true;
}

// Returns the number of bytes that arrived as they were sent, up to end of file or the first wrong
// byte. After `stall_at` bytes it pauses for `stall` and measures the CPU time meanwhile.
size_t CheckPattern(int fd, size_t stall_at, milliseconds stall, double* cpu_while_stalled_s) {
  Pattern pattern;
  std::vector<char> got(70'000), wanted(got.size());
  size_t total = 0;
  bool stalled = false;
  while (true) {
    if (!stalled && total >= stall_at) {
      stalled = true;
      std::this_thread::sleep_for(stall / 4);  // enough to fill all buffers in between
      const std::clock_t before = std::clock();
      std::this_thread::sleep_for(stall);
      if (cpu_while_stalled_s)
        *cpu_while_stalled_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    }
    const ssize_t n = ::recv(fd, got.data(), got.size(), 0);
    if (n <= 0) return total;
    pattern.Fill(wanted.data(), static_cast<size_t>(n));
    if (!std::equal(got.begin(), got.begin() + n, wanted.begin())) return total;
    total += static_cast<size_t>(n);
  }
}

// Sanitizers keep freed memory and use memory of their own, so memory growth is not checked with
// them.
#ifdef DSLAUNCH_SANITIZED
constexpr int64_t kGrowthCountsUpTo = 0;
#else
constexpr int64_t kGrowthCountsUpTo = INT64_MAX;
#endif

int64_t GrowthKib(int64_t resident_before) {
  return std::min(kGrowthCountsUpTo, OwnMemoryKib("VmRSS") - resident_before);
}

class SshPumpTest : public SshdTest {
 protected:
  void SetUp() override {
    SshdTest::SetUp();
    ::unsetenv("SSH_AUTH_SOCK");
  }

  std::unique_ptr<SshLink> Run(const std::string& command) {
    auto start = [command](SshSession& session, TailBuffer& tail, Deadline deadline) {
      return session.Exec(command, tail, deadline);
    };
    Result<std::unique_ptr<SshLink>> link =
        SshLink::Open(Target(), Options(), start, Deadline::After(kPlenty));
    if (link) return std::move(*link);
    ADD_FAILURE() << link.error().message;
    return nullptr;
  }
};

TEST_F(SshPumpTest, Carries200MbEachWayDespiteRekeysAndStall) {
  constexpr size_t kBytes = 200'000'000;
  StartSshd("RekeyLimit 16M");
  const auto link = Run("cat");
  ASSERT_NE(link, nullptr);
  UniqueFd stream = link->TakeFd();
  const int64_t resident_before = OwnMemoryKib("VmRSS");
  const auto start = Clock::now();
  std::thread writer([&] {
    EXPECT_TRUE(SendPattern(stream.get(), kBytes));
    ::shutdown(stream.get(), SHUT_WR);
  });
  double cpu_while_stalled_s = 1e9;
  EXPECT_EQ(CheckPattern(stream.get(), kBytes / 3, milliseconds(2000), &cpu_while_stalled_s),
            kBytes);
  writer.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count() - 2.5;
  EXPECT_LT(cpu_while_stalled_s, 0.1) << "somebody spins while the reader stalls";
  EXPECT_LT(GrowthKib(resident_before), 40'000);
  EXPECT_TRUE(link->WaitEnd(Deadline::After(kPlenty)));
  EXPECT_EQ(link->End()->exit_status, 0);
  std::printf(
      "200 MB each way in %.1f s beside the stall: %.0f MB/s; CPU in 2 s of stall: %.3f s\n",
      seconds, static_cast<double>(kBytes) / 1e6 / seconds, cpu_while_stalled_s);
}

TEST_F(SshPumpTest, MemoryStaysSmallWithSlowReader) {
  StartSshd();
  const auto link = Run("exec head -c 200000000 /dev/zero");
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  const int64_t resident_before = OwnMemoryKib("VmRSS");
  std::array<char, 4096> bytes;
  const Deadline deadline = Deadline::After(milliseconds(2000));
  while (!deadline.Expired()) {  // small reads, each of which makes room for the pump
    ASSERT_GT(::recv(stream.get(), bytes.data(), bytes.size(), 0), 0);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(GrowthKib(resident_before), 20'000);
}

// Writes are limited, because each packet would be expensive for sshd, which copies everything that
// it holds.
TEST_F(SshPumpTest, LimitsWritesToCommandThatReadsNothing) {
  StartSshd();
  const std::string bytes(SshStream::kMostWritten, 'x');
  size_t at_once = 0, later = 0;
  const auto write = [&](SshSession& session, TailBuffer& tail,
                         Deadline deadline) -> Result<std::unique_ptr<SshStream>> {
    Result<std::unique_ptr<SshStream>> stream = session.Exec("exec sleep 20", tail, deadline);
    if (!stream) return stream;
    while (const int n = (*stream)->Write(bytes)) at_once += static_cast<size_t>(n);
    std::this_thread::sleep_for(SshStream::kHeldAtMost + milliseconds(10));
    later = static_cast<size_t>((*stream)->Write(bytes));
    return stream;
  };
  ASSERT_TRUE(SshLink::Open(Target(), Options(), write, Deadline::After(kPlenty)));
  EXPECT_GE(at_once, SshStream::kMostUnderWay);
  EXPECT_LT(at_once, 2 * SshStream::kMostUnderWay) << "its pipe may have taken some";
  EXPECT_EQ(later, bytes.size()) << "there are sshds that tell late what is taken";
}

// A login frees much memory, which malloc keeps for the thread until the thread ends. While the
// agent is copied, hundreds of nodes may wait.
TEST_F(SshPumpTest, LoginThreadEndsBeforeCommandStarts) {
  StartSshd();
  std::thread::id starts;
  const auto start = [&](SshSession& session, TailBuffer& tail, Deadline deadline) {
    starts = std::this_thread::get_id();
    return session.Exec("exec cat", tail, deadline);
  };
  ASSERT_TRUE(SshLink::Open(Target(), Options(), start, Deadline::After(kPlenty)));
  EXPECT_EQ(starts, std::this_thread::get_id());
}

#ifndef DSLAUNCH_SANITIZED  // because sanitizers keep the stacks of ended threads
TEST_F(SshPumpTest, LinksKeepNoThreadStacks) {
  StartSshd();
  std::vector<std::unique_ptr<SshLink>> links;
  for (int i = 0; i < 5; ++i) links.push_back(Run("cat"));
  // The measurement starts after some links, because the C library itself caches 40 MB of stacks.
  const int64_t mapped_before = OwnMemoryKib("VmSize");
  constexpr int kMore = 15;
  for (int i = 0; i < kMore; ++i) links.push_back(Run("cat"));
  pthread_attr_t attributes;
  size_t stack_bytes = 0;
  ASSERT_EQ(::pthread_getattr_default_np(&attributes), 0);
  ::pthread_attr_getstacksize(&attributes, &stack_bytes);
  if (stack_bytes < (size_t{8} << 20)) GTEST_SKIP() << "the C library keeps all of them";
  EXPECT_LT(OwnMemoryKib("VmSize") - mapped_before,
            kMore * static_cast<int64_t>(stack_bytes >> 10) / 2);
}
#endif

TEST_F(SshPumpTest, IdleLinkUsesNoProcessorTime) {
  StartSshd();
  const auto link = Run("cat");
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  ASSERT_EQ(::send(stream.get(), "x", 1, 0), 1);
  char back = 0;
  ASSERT_EQ(::recv(stream.get(), &back, 1, 0), 1);
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(milliseconds(2000));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.01);
}

TEST_F(SshPumpTest, PassesEndOfFileInEachDirectionSeparately) {
  StartSshd();
  const auto link = Run("FAKE_AGENT=half-close exec " DSLAUNCH_FAKE_AGENT " supervisor --nonce 0");
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  std::array<char, 16> bytes{};
  // recv() returns at end of file.
  ASSERT_EQ(::recv(stream.get(), bytes.data(), bytes.size(), MSG_WAITALL), 3);
  EXPECT_STREQ(bytes.data(), "out");
  EXPECT_FALSE(link->End().has_value());
  ASSERT_EQ(::send(stream.get(), "in", 2, MSG_NOSIGNAL), 2);
  ::shutdown(stream.get(), SHUT_WR);
  EXPECT_TRUE(link->WaitEnd(Deadline::After(kPlenty)));
  EXPECT_EQ(link->End()->exit_status, 5);
}

TEST_F(SshPumpTest, DeliversOutputAfterEndOfCommand) {
  StartSshd();
  const auto link = Run("exec head -c 3000000 /dev/zero");
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  std::this_thread::sleep_for(milliseconds(500));
  std::vector<char> bytes(100'000);
  size_t total = 0;
  for (ssize_t n = 0; (n = ::recv(stream.get(), bytes.data(), bytes.size(), 0)) > 0;)
    total += static_cast<size_t>(n);
  EXPECT_EQ(total, 3'000'000u);
}

TEST_F(SshPumpTest, DrainsStderrAndKeepsItsTail) {
  StartSshd();
  const auto link = Run("head -c 3000000 /dev/zero >&2; echo last words >&2");
  ASSERT_NE(link, nullptr);
  EXPECT_TRUE(link->WaitEnd(Deadline::After(kPlenty)));
  EXPECT_EQ(link->StderrTail().size(), 4096u);
  EXPECT_THAT(link->StderrTail(), HasSubstr("last words"));
}

TEST_F(SshPumpTest, AbortFreesBlockedWriterAndSendsEndOfFile) {
  StartSshd();
  const std::string witness = (folder_ / "saw-end").string();
  const auto link = Run("sleep 1; cat > /dev/null; touch " + witness);
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  std::thread writer([&] { EXPECT_FALSE(SendPattern(stream.get(), 100'000'000'000)); });
  std::this_thread::sleep_for(milliseconds(300));
  link->Abort("test");
  writer.join();
  EXPECT_TRUE(link->WaitEnd(Deadline::After(kPlenty)));
  EXPECT_TRUE(std::filesystem::exists(witness));
}

TEST_F(SshPumpTest, DestructionClosesStreamAtOnce) {
  StartSshd();
  const std::string pid_file = (folder_ / "pid").string();
  auto link = Run("echo $$ > " + pid_file + "; exec sleep 1000");
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  EXPECT_FALSE(link->WaitEnd(Deadline::After(milliseconds(500))));
  const auto start = Clock::now();
  link.reset();
  EXPECT_LT(Clock::now() - start, milliseconds(500));
  char byte = 0;
  EXPECT_EQ(::recv(stream.get(), &byte, 1, 0), 0);
  ::kill(std::stoi(ReadFile(pid_file)),
         SIGKILL);  // sshd leaves it running; a supervisor ends at end of file, but sleep does not
}

TEST_F(SshPumpTest, LostConnectionEndsStream) {
  StartSshd();
  // $PPID is the sshd that serves this session.
  const auto link = Run("echo $PPID; read -r line; kill -9 $PPID");
  ASSERT_NE(link, nullptr);
  const UniqueFd stream = link->TakeFd();
  std::array<char, 32> bytes{};
  ASSERT_GT(::recv(stream.get(), bytes.data(), bytes.size(), 0), 0);
  ASSERT_EQ(::send(stream.get(), "\n", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(::recv(stream.get(), bytes.data(), bytes.size(), 0), 0);
  EXPECT_FALSE(link->WaitEnd(Deadline::After(kPlenty)));
  ASSERT_TRUE(link->End().has_value());
  EXPECT_NE(link->End()->error, "");
}

}  // namespace
}  // namespace dslaunch
