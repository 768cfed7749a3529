#include "cli/top/outliers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/top/fake_job.h"

namespace dslaunch::outliers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns the outliers as "rank 3: why" or "node1: why". `later`: time since the last sample.
std::vector<std::string> Find(FakeJob& job, std::chrono::seconds later = {}) {
  std::vector<std::string> texts;
  for (const Outlier& outlier : FindOutliers(job.model(), job.now() + later)) {
    texts.push_back((outlier.rank ? "rank " + std::to_string(*outlier.rank)
                                  : job.model().nodes()[outlier.node].name) +
                    ": " + outlier.why);
  }
  return texts;
}

TEST(OutliersTest, FindsNoneInHealthyJob) {
  FakeJob job(2, 4, true);
  job.Turn();
  EXPECT_THAT(Find(job), IsEmpty());
  EXPECT_FALSE(IsStalled(job.model(), job.now()));
}

TEST(OutliersTest, NamesRankOfLowPowerOnlyInStalledJob) {
  FakeJob job(2, 4, true);
  job.device(5).set_power_w(98);
  job.Turn();
  EXPECT_THAT(Find(job), IsEmpty());
  EXPECT_TRUE(IsStalled(job.model(), job.now() + std::chrono::seconds(11)));
  EXPECT_THAT(Find(job, std::chrono::seconds(11)),
              ElementsAre("rank 5: draws 98 W, median 412 W, while the job stalls"));
}

TEST(OutliersTest, WaitsForFiveStepsBeforeStall) {
  FakeJob job(1, 4, true);
  for (uint32_t rank = 0; rank < 4; ++rank) job.rank(rank).set_median_step_us(60'000'000);
  job.Turn();
  EXPECT_FALSE(IsStalled(job.model(), job.now() + std::chrono::seconds(290)));
  EXPECT_TRUE(IsStalled(job.model(), job.now() + std::chrono::seconds(310)));
}

TEST(OutliersTest, NamesRankWithSlowOwnWork) {
  FakeJob job(2, 4, false);
  job.rank(6).set_median_compute_us(510'000);
  job.Turn();
  EXPECT_THAT(Find(job), IsEmpty());  // 13 % above the median is normal
  job.rank(6).set_median_compute_us(600'000);
  job.Turn();
  EXPECT_THAT(Find(job), ElementsAre("rank 6: own work 0.6 s a step, median 0.45 s"));
}

TEST(OutliersTest, NamesRankBehindTheOthers) {
  FakeJob job(2, 4, false);
  job.rank(2).set_step(1198);  // within the delay of reports, which may be 3 s late
  job.rank(3).set_step(1190);
  job.Turn();
  EXPECT_THAT(Find(job), ElementsAre("rank 3: at step 1190, median 1204"));
}

TEST(OutliersTest, NamesBadDevices) {
  FakeJob job(1, 4, true);
  // An idle GPU and the user's power cap are normal reasons.
  job.device(0).set_throttle_reasons(0x5);
  job.device(1).set_throttle_reasons(0x40);
  job.device(2).set_ecc_uncorrected(2);
  job.Turn();
  EXPECT_THAT(Find(job), ElementsAre("rank 1: GPU 1 slows down: too hot",
                                     "rank 2: GPU 2 has 2 uncorrected memory errors"));
}

TEST(OutliersTest, NamesFailedRanksAndLostNodesFirst) {
  FakeJob job(2, 4, false);
  job.sample(0).mutable_machine()->set_memory_used_bytes(uint64_t{500} << 30);
  job.Turn();
  job.model().OnLost(1, "no route to host");
  pb::NodeEvent event;
  event.mutable_worker_ended()->set_attempt(1);
  event.mutable_worker_ended()->set_rank(2);
  event.mutable_worker_ended()->set_exit_code(1);
  job.model().OnEvent(0, event, job.now());
  EXPECT_THAT(Find(job), ElementsAre("node1: no route to host", "rank 2: exit code 1",
                                     "node0: uses 500G of 512G memory"));
}

TEST(OutliersTest, ComparesOnlyThreeRanksOrMore) {
  FakeJob job(1, 2, true);
  job.rank(0).set_median_compute_us(10);
  job.rank(1).set_step(3);
  job.Turn();
  EXPECT_THAT(Find(job), IsEmpty());
}

}  // namespace
}  // namespace dslaunch::outliers_test
