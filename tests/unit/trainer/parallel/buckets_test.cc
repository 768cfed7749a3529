#include "trainer/parallel/buckets.h"

#include <gtest/gtest.h>

namespace dslaunch::buckets_test {
namespace {

using Buckets = std::vector<std::vector<size_t>>;

TEST(BucketsTest, CutsInGivenOrder) {
  EXPECT_EQ(AssignBuckets({10, 20, 30, 40}, {3, 2, 1, 0}, 70), (Buckets{{3, 2}, {1, 0}}));
  EXPECT_EQ(AssignBuckets({10, 20, 30, 40}, {0, 1, 2, 3}, 60), (Buckets{{0, 1, 2}, {3}}));
}

TEST(BucketsTest, PutsTooLargeParameterIntoSeparateBucket) {
  EXPECT_EQ(AssignBuckets({10, 1000, 10, 10}, {0, 1, 2, 3}, 100), (Buckets{{0}, {1}, {2, 3}}));
}

TEST(BucketsTest, PutsEmptyParameterIntoAnyBucket) {
  EXPECT_EQ(AssignBuckets({100, 0, 100}, {0, 1, 2}, 100), (Buckets{{0, 1}, {2}}));
  EXPECT_EQ(AssignBuckets({}, {}, 100), Buckets{});
}

}  // namespace
}  // namespace dslaunch::buckets_test
