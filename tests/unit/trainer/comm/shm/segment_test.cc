#include "trainer/comm/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/unique_fd.h"

namespace dslaunch::segment_test {
namespace {

constexpr size_t kSegmentBytes = 1 << 16;

TEST(SharedSegmentTest, BothSidesShareMemory) {
  const SharedSegment made = SharedSegment::Make(kSegmentBytes);
  const SharedSegment opened = SharedSegment::Open(getpid(), made.fd(), kSegmentBytes);
  made.data()[kSegmentBytes - 1] = std::byte{7};
  EXPECT_EQ(opened.data()[kSegmentBytes - 1], std::byte{7});
}

// The size is sealed, because a process that accesses memory beyond the end of a file is killed.
TEST(SharedSegmentTest, SizeCannotBeChanged) {
  const SharedSegment made = SharedSegment::Make(kSegmentBytes);
  const std::string path = "/proc/self/fd/" + std::to_string(made.fd());
  const UniqueFd other(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(other.valid());
  for (const off_t bytes : {off_t{0}, off_t{kSegmentBytes - 4'096}, off_t{2 * kSegmentBytes}}) {
    EXPECT_EQ(ftruncate(other.get(), bytes), -1) << bytes;
    EXPECT_EQ(errno, EPERM) << bytes;
  }
  made.data()[kSegmentBytes - 1] = std::byte{7};
}

TEST(SharedSegmentTest, RejectsWrongSizeAndMissingSeals) {
  const SharedSegment made = SharedSegment::Make(kSegmentBytes);
  EXPECT_THROW(SharedSegment::Open(getpid(), made.fd(), 2 * kSegmentBytes), std::system_error);
  const UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(unsealed.valid());
  ASSERT_EQ(ftruncate(unsealed.get(), kSegmentBytes), 0);
  EXPECT_THROW(SharedSegment::Open(getpid(), unsealed.get(), kSegmentBytes), std::system_error);
}

}  // namespace
}  // namespace dslaunch::segment_test
