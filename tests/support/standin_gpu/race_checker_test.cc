#include "tests/support/standin_gpu/race_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::standin::race_checker_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr bool kRead = false, kWrite = true;

// Simulates streams that share one block of 100 bytes.
class AccessLogTest : public ::testing::Test {
 protected:
  std::vector<Access> Do(int stream, bool write, uintptr_t begin = 0, uintptr_t end = 100) {
    Clock& clock = clocks_[static_cast<size_t>(stream)];
    const uint32_t count = clock.Tick(stream);
    return log_.Add({begin, end, write, stream, count, "op"}, clock);
  }
  void WaitFor(int stream, int other) {
    clocks_[static_cast<size_t>(stream)].Join(clocks_[static_cast<size_t>(other)]);
  }

  AccessLog log_;
  std::array<Clock, 3> clocks_;
};

TEST_F(AccessLogTest, OneStreamIsOrdered) {
  EXPECT_THAT(Do(1, kWrite), IsEmpty());
  EXPECT_THAT(Do(1, kRead), IsEmpty());
  EXPECT_THAT(Do(1, kWrite), IsEmpty());
}

TEST_F(AccessLogTest, ReadConflictsWithoutWaitForOtherStream) {
  Do(1, kWrite);
  EXPECT_THAT(Do(2, kRead), SizeIs(1));
}

TEST_F(AccessLogTest, ReadAfterWaitDoesNotConflict) {
  Do(1, kWrite);
  WaitFor(2, 1);
  EXPECT_THAT(Do(2, kRead), IsEmpty());
}

TEST_F(AccessLogTest, WaitsAreTransitive) {
  Do(0, kWrite);
  WaitFor(1, 0);
  WaitFor(2, 1);
  EXPECT_THAT(Do(2, kWrite), IsEmpty());
}

TEST_F(AccessLogTest, OldWaitDoesNotCoverLaterWork) {
  Do(1, kWrite);
  WaitFor(2, 1);
  Do(1, kWrite);
  EXPECT_THAT(Do(2, kRead), SizeIs(1));
}

TEST_F(AccessLogTest, ReadsDoNotConflict) {
  Do(1, kRead);
  EXPECT_THAT(Do(2, kRead), IsEmpty());
}

TEST_F(AccessLogTest, WriteConflictsWithEarlierRead) {
  Do(1, kRead);
  EXPECT_THAT(Do(2, kWrite), SizeIs(1));
}

TEST_F(AccessLogTest, OnlySharedBytesConflict) {
  Do(1, kWrite, 0, 50);
  EXPECT_THAT(Do(2, kWrite, 50, 100), IsEmpty());
  EXPECT_THAT(Do(2, kRead, 49, 51), SizeIs(1));
}

TEST_F(AccessLogTest, KeepsOnlyNewestReadAndWriteOfEachStream) {
  for (int i = 0; i < 1000; ++i) Do(1, i % 2 == 0);
  EXPECT_THAT(log_.accesses(), SizeIs(2));
}

TEST(DescribeRace, NamesBothOperationsAndStreams) {
  const Access later{0, 1, kRead, kStreamsPerDevice + 2, 1, "aten::mul"};
  const Access earlier{0, 1, kWrite, kStreamsPerDevice + 1, 1, "aten::fill_"};
  EXPECT_THAT(DescribeRace(later, earlier),
              HasSubstr("aten::mul in stream 2 of device 1 reads what aten::fill_ in stream 1 of "
                        "device 1 writes"));
}

}  // namespace
}  // namespace dslaunch::standin::race_checker_test
