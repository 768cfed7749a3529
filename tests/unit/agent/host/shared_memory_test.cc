#include "agent/host/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace dslaunch::shared_memory_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kMiB = 1 << 20;

TEST(SharedMemoryEvidenceTest, NamesFullOrSmallSpaceOnBusError) {
  const SharedMemorySpace full{.free_bytes = 3 * kMiB, .total_bytes = 1024 * kMiB};
  EXPECT_THAT(SharedMemoryEvidence(SIGBUS, "", full).value_or(""),
              StartsWith("/dev/shm is full (3 of 1024 MiB are free)"));
  const SharedMemorySpace small{.free_bytes = 60 * kMiB, .total_bytes = 64 * kMiB};
  EXPECT_THAT(SharedMemoryEvidence(SIGBUS, "", small).value_or(""),
              HasSubstr("/dev/shm is small (60 of 64 MiB are free)"));
  const SharedMemorySpace large{.free_bytes = 900 * kMiB, .total_bytes = 1024 * kMiB};
  EXPECT_EQ(SharedMemoryEvidence(SIGBUS, "", large), std::nullopt);
  EXPECT_EQ(SharedMemoryEvidence(SIGBUS, "", std::nullopt), std::nullopt);
}

TEST(SharedMemoryEvidenceTest, NamesFullSpaceIfTheOutputIsAboutIt) {
  const SharedMemorySpace full{.free_bytes = 0, .total_bytes = 64 * kMiB};
  for (const char* text :
       {"RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2>: No space left"})
    EXPECT_TRUE(SharedMemoryEvidence(0, text, full)) << text;
  EXPECT_EQ(SharedMemoryEvidence(0, "ValueError: bad", full), std::nullopt);
  EXPECT_EQ(SharedMemoryEvidence(SIGSEGV, "", full), std::nullopt);
}

}  // namespace
}  // namespace dslaunch::shared_memory_test
