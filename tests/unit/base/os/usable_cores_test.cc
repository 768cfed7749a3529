#include "base/os/usable_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

namespace dslaunch::usable_cores_test {
namespace {

TEST(ParseCpuMax, RoundsQuotaDownToWholeCpus) {
  EXPECT_EQ(ParseCpuMax("max 100000\n"), std::nullopt);
  EXPECT_EQ(ParseCpuMax("400000 100000"), 4u);
  EXPECT_EQ(ParseCpuMax("250000 100000"), 2u);
  EXPECT_EQ(ParseCpuMax("20000 100000"), 1u);
  EXPECT_EQ(ParseCpuMax(""), std::nullopt);
  EXPECT_EQ(ParseCpuMax("5"), std::nullopt);
}

TEST(UsableCores, CountsCpusOfAffinityMask) {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const int cores = UsableCores();
  ::sched_setaffinity(0, sizeof all, &all);
  EXPECT_EQ(cores, 1);
}

TEST(UsableCpusTest, ListsCpusOfAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = UsableCpus();
  ASSERT_FALSE(all.empty());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_THAT(UsableCpus(), testing::ElementsAre(all.back()));
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace dslaunch::usable_cores_test
