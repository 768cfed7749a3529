#include "trainer/sdk/rank_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace dslaunch::rank_end_test {
namespace {

using testing::HasSubstr;

int Exited(int code) { return W_EXITCODE(code, 0); }

TEST(RankEndTest, NamesRankWithCodeOrSignal) {
  const TrainError code = SpawnError({{.rank = 0}, {.rank = 1, .wait_status = Exited(7)}});
  EXPECT_THAT(code.what(), HasSubstr("rank 1 ended with exit code 7"));
  EXPECT_EQ(code.exit_code(), 7);
  const TrainError signal = SpawnError({{.rank = 2, .wait_status = SIGKILL}});
  EXPECT_THAT(signal.what(), HasSubstr("rank 2 was killed by SIGKILL"));
  EXPECT_EQ(signal.exit_code(), 137);
}

TEST(RankEndTest, PrefersCauseOverVictims) {
  const TrainError error = SpawnError({{.rank = 0, .wait_status = Exited(69), .victim = true},
                                       {.rank = 2, .wait_status = SIGTERM, .stopped = true},
                                       {.rank = 1, .wait_status = SIGSEGV}});
  EXPECT_THAT(error.what(), HasSubstr("rank 1 was killed by SIGSEGV"));
  EXPECT_EQ(SpawnError({{.rank = 3, .wait_status = Exited(75), .victim = true},
                        {.rank = 1, .wait_status = SIGTERM, .stopped = true}})
                .exit_code(),
            75)
      << "but it is the cause if no other rank is";
  EXPECT_THAT(SpawnError({{.rank = 0, .wait_status = Exited(69), .victim = true},
                          {.rank = 1, .wait_status = Exited(69)}})
                  .what(),
              HasSubstr("rank 1 ended with exit code 69"))
      << "a GPU without memory has the code of a lost peer";
}

TEST(RankEndTest, RankThatNeverReportedHasFailed) {
  const RankEnd end = {.rank = 1, .reached_spawn = false};
  EXPECT_TRUE(Failed(end));
  EXPECT_THAT(SpawnError({end}).what(), HasSubstr("rank 1 ended before its Spawn call"));
}

}  // namespace
}  // namespace dslaunch::rank_end_test
