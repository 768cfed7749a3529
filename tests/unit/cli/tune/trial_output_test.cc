#include "cli/tune/trial_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace dslaunch::trial_output_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Closing(const std::string& evidence, bool out_of_memory) {
  return nlohmann::ordered_json{{"job", "j"},
                                {"cause",
                                 {{"message", "rank 1 exited with 69"},
                                  {"evidence", evidence},
                                  {"out_of_memory", out_of_memory}}}}
             .dump() +
         "\n";
}

TEST(TrialOutputTest, ReadsStepsWithoutWarmUp) {
  JobRun run;
  run.wall_s = 3;
  run.out =
      "[node1:0] hello\n[node1:0] {\"trial\":{\"step_s\":[9,8,0.5,0.25],\"samples\":[8,8,8,8],"
      "\"peak_bytes\":77}}\n{\"job\":\"j\",\"cause\":null}\n";
  const TrialResult result = ReadTrial(run, 8);
  EXPECT_EQ(result.end, TrialEnd::kMeasured);
  EXPECT_THAT(result.steps_s, ElementsAre(0.5, 0.25));
  EXPECT_EQ(result.peak_bytes, 77);
  EXPECT_EQ(result.wall_s, 3);
}

TEST(TrialOutputTest, LeavesOutStepsAtEndOfEpoch) {
  JobRun run;
  run.out = R"({"trial":{"step_s":[1,1,0.5,0.1,0.6],"samples":[8,8,8,3,8],"peak_bytes":0}})";
  EXPECT_THAT(ReadTrial(run, 8).steps_s, ElementsAre(0.5, 0.6));
  run.out = R"({"trial":{"step_s":[1,1,0.5,0.25],"samples":[4,4,4,2],"peak_bytes":0}})";
  EXPECT_THAT(ReadTrial(run, 8).steps_s, ElementsAre(1, 1));
}

TEST(TrialOutputTest, DistinguishesOutOfMemoryFromFailure) {
  JobRun run;
  run.exit_code = 69;
  run.out = Closing("rank 1: out of memory: CUDA out of memory. Tried", false);
  EXPECT_EQ(ReadTrial(run, 8).end, TrialEnd::kOutOfMemory);
  EXPECT_THAT(ReadTrial(run, 8).cause, HasSubstr("CUDA out of memory"));
  run.out = Closing("", true);
  EXPECT_EQ(ReadTrial(run, 8).end, TrialEnd::kOutOfMemory);
  run.out = Closing("loss is nan", false);
  EXPECT_EQ(ReadTrial(run, 8).end, TrialEnd::kFailed);
  EXPECT_EQ(ReadTrial(run, 8).cause, "loss is nan");
  run.out = Closing("", false);
  EXPECT_EQ(ReadTrial(run, 8).cause, "rank 1 exited with 69");
}

TEST(TrialOutputTest, TakesErrorBeforeJobBegan) {
  JobRun run;
  run.exit_code = 65;
  run.err = "dslaunch: a notice\ndslaunch: r.yaml:3:5: wrong\n";
  EXPECT_EQ(ReadTrial(run, 8).cause, "r.yaml:3:5: wrong");
  EXPECT_EQ(ReadPlan(run).failure, "r.yaml:3:5: wrong");
  EXPECT_EQ(ReadPlan(run).exit_code, 65);
  run.err.clear();
  EXPECT_EQ(ReadTrial(run, 8).cause, "the job ended with exit code 65");
}

TEST(TrialOutputTest, ReportsLimit) {
  JobRun run;
  run.timed_out = true;
  run.limit_s = 40;
  run.exit_code = 143;
  EXPECT_EQ(ReadTrial(run, 8).end, TrialEnd::kTimedOut);
  EXPECT_EQ(ReadTrial(run, 8).cause, "did not end within 40 s");
  EXPECT_EQ(ReadPlan(run).failure, "the plan of its memory did not end within 40 s");
}

TEST(TrialOutputTest, PlanIsOfStageThatNeedsMost) {
  JobRun run;
  run.out =
      "[a:0] {\"plan\":{\"ranks\":2,\"needs\":50,\"has\":90,\"passes\":20,\"on_gpu\":true}}\n"
      "[a:0] {\"plan\":{\"ranks\":2,\"needs\":70,\"has\":90,\"passes\":30,\"on_gpu\":true}}\n"
      "[a:0] {\"plan\":{\"ranks\":2,\"needs\":60,\"has\":90,\"passes\":50,\"on_gpu\":true}}\n";
  const PlanResult plan = ReadPlan(run);
  EXPECT_EQ(plan.failure, "");
  EXPECT_EQ(plan.needs_bytes, 70);
  EXPECT_EQ(plan.passes_bytes, 30);
  EXPECT_EQ(plan.has_bytes, 90);
  EXPECT_TRUE(plan.on_gpu);
}

TEST(TrialOutputTest, RejectsMalformedSteps) {
  for (const char* trial :
       {R"({"step_s":[1,1,1],"samples":[8,8]})", R"({"step_s":[1,1,-1],"samples":[8,8,8]})",
        R"({"step_s":[1,1,"a"],"samples":[8,8,8]})", R"({"step_s":[1,1,1e999],"samples":[8,8,8]})",
        R"({"step_s":[1,1,1],"samples":[8,8,0]})", R"({"step_s":3})", R"([1])", R"({"step_s")",
        R"({"step_s":[1,1],"samples":[8,8]})"}) {
    SCOPED_TRACE(trial);
    JobRun run;
    run.out = "{\"trial\":" + std::string(trial) + "}\n";
    const TrialResult result = ReadTrial(run, 8);
    EXPECT_EQ(result.end, TrialEnd::kFailed);
    EXPECT_TRUE(result.steps_s.empty());
    EXPECT_EQ(result.cause, "its steps were not reported");
  }
}

}  // namespace
}  // namespace dslaunch::trial_output_test
