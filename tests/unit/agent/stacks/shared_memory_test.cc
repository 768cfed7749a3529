#include "agent/stacks/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace dslaunch {
namespace {

constexpr size_t kMost = size_t{32} << 20;

TEST(SharedMemoryTest, DigestChangesWithContentOnly) {
  constexpr size_t kSize = 1 << 20;
  void* const memory =
      mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kSize / 2);
  const uint64_t before = DigestOfSharedMemory(getpid(), kMost);
  EXPECT_NE(before, 0u);
  EXPECT_EQ(DigestOfSharedMemory(getpid(), kMost), before);
  static_cast<char*>(memory)[kSize / 4] = 2;
  EXPECT_NE(DigestOfSharedMemory(getpid(), kMost), before);
  static_cast<char*>(memory)[kSize / 4] = 1;
  EXPECT_EQ(DigestOfSharedMemory(getpid(), kMost), before);
  munmap(memory, kSize);
}

TEST(SharedMemoryTest, ReadsNoPageThatProcessHasNotUsed) {
  constexpr size_t kSize = 64 << 20;
  const int file = memfd_create("unused", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, kSize), 0);
  void* const memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(memory, MAP_FAILED);
  static_cast<char*>(memory)[0] = 1;
  EXPECT_NE(DigestOfSharedMemory(getpid(), kMost), 0u) << "64 MB are mapped, and a page is used";
  EXPECT_EQ(lseek(file, 4096, SEEK_DATA), -1) << "no other page was allocated";
  munmap(memory, kSize);
  close(file);
}

TEST(SharedMemoryTest, ReturnsZeroBeyondLimitAndForMissingProcess) {
  constexpr size_t kSize = 1 << 20;
  void* const memory =
      mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kSize);
  EXPECT_EQ(DigestOfSharedMemory(getpid(), kSize / 2), 0u);
  munmap(memory, kSize);
  EXPECT_EQ(DigestOfSharedMemory(0x7ffffff, kMost), 0u);
}

}  // namespace
}  // namespace dslaunch
