#include "cli/commands/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace dslaunch::job_view_test {
namespace {

using ::testing::HasSubstr;
using State = JobView::State;

JobRecord Record(const std::string& id) {
  JobRecord record;
  record.job_id = id;
  record.nodes = {{"node1", "node1", 0, ""}, {"node2", "node2", 0, ""}};
  record.argv = {"dslaunch", "--num_nodes", "2", "train"};
  record.started_unix_ms = 1'000'000;
  return record;
}

NodeAnswer Running(int step) {
  NodeAnswer answer;
  answer.sight.emplace().set_state(pb::JobSight::RUNNING);
  pb::JobStatus& status = *answer.sight->mutable_status();
  status.set_world_size(4);
  status.set_phase(pb::JobStatus::RUNNING);
  status.add_status()->set_line(R"({"event":"step","step":)" + std::to_string(step) +
                                R"(,"total_steps":100,"loss":1,"samples_per_s":2})");
  return answer;
}

NodeAnswer Ended(int exit_code, bool closed) {
  NodeAnswer answer;
  answer.sight.emplace().set_state(pb::JobSight::ENDED);
  pb::JobResult& result = *answer.sight->mutable_result();
  result.set_exit_code(exit_code);
  result.set_ended_unix_ms(2'000'000);
  result.mutable_done()->set_completed(closed);
  if (exit_code != 0) {
    result.mutable_cause()->set_kind(pb::Cause::WORKER_SIGNAL);
    result.mutable_cause()->set_node_index(1);
    result.mutable_cause()->set_rank(3);
    result.mutable_cause()->set_signal(exit_code - 128);
  }
  return answer;
}

NodeAnswer Seen(pb::JobSight::State state) {
  NodeAnswer answer;
  answer.sight.emplace().set_state(state);
  answer.sight->add_pids(4711);
  return answer;
}

NodeAnswer Unreachable() { return {std::nullopt, "node1: connection refused"}; }

State StateOf(const std::vector<NodeAnswer>& answers) {
  return MakeJobView(Record("a"), false, answers).state;
}

TEST(JobViewTest, JobRunsIfAnyNodeReportsIt) {
  const JobView view = MakeJobView(Record("a"), false, {Unreachable(), Running(30)});
  EXPECT_EQ(view.state, State::kRunning);
  EXPECT_EQ(view.ranks, 4);
  EXPECT_EQ(view.step, 30);
  EXPECT_EQ(view.total_steps, 100);
}

TEST(JobViewTest, EndsWithFinalStatusOrAllAnswers) {
  EXPECT_EQ(StateOf({Ended(137, false), Ended(0, false)}), State::kEnded);
  EXPECT_EQ(StateOf({Unreachable(), Ended(0, true)}), State::kEnded);
  EXPECT_EQ(StateOf({Unreachable(), Ended(0, false)}), State::kUnreachable);
}

TEST(JobViewTest, PrefersFinalStatusThenFailure) {
  EXPECT_EQ(MakeJobView(Record("a"), false, {Ended(137, false), Ended(0, true)}).exit_code, 0);
  const JobView view = MakeJobView(Record("a"), false, {Ended(0, false), Ended(137, false)});
  EXPECT_EQ(view.exit_code, 137);
  EXPECT_EQ(view.detail, "rank 3 (node2) was killed by SIGKILL");
  EXPECT_EQ(StateText(view), "ended (137)");
}

TEST(JobViewTest, NamesProcessesLeftWithoutAgent) {
  const JobView view =
      MakeJobView(Record("a"), false, {Seen(pb::JobSight::LOST), Seen(pb::JobSight::STRAY)});
  EXPECT_EQ(view.state, State::kStray);
  EXPECT_THAT(view.detail, HasSubstr("node2 has processes of it without an agent: 4711"));
  EXPECT_EQ(StateOf({Seen(pb::JobSight::LOST), Seen(pb::JobSight::GONE)}), State::kLost);
}

TEST(JobViewTest, RecordAndFrontEndNeedNoAnswers) {
  EXPECT_EQ(MakeJobView(Record("a"), true, {}).state, State::kFrontEnd);
  JobRecord record = Record("a");
  record.ended_unix_ms = 5;
  record.exit_code = 7;
  const JobView view = MakeJobView(record, true, {});
  EXPECT_EQ(view.state, State::kEnded);
  EXPECT_EQ(view.exit_code, 7);
}

TEST(JobViewTest, FindsJobByIdPartOrLast) {
  const std::vector<JobRecord> records = {Record("20260101-aa"), Record("20260101-bb"),
                                          Record("20260202-cc")};
  EXPECT_EQ(FindJob(records, "20260101-aa")->job_id, "20260101-aa");
  EXPECT_EQ(FindJob(records, "202602")->job_id, "20260202-cc");
  EXPECT_EQ(FindJob(records, "bb")->job_id, "20260101-bb");
  EXPECT_EQ(FindJob(records, "last")->job_id, "20260202-cc");
  EXPECT_THAT(FindJob(records, "20260101").error().message,
              HasSubstr("2 jobs (20260101-aa, 20260101-bb)"));
  EXPECT_THAT(FindJob(records, "20260202-cd").error().message,
              HasSubstr("did you mean 20260202-cc?"));
  EXPECT_THAT(FindJob(records, "zzz").error().message, HasSubstr("dslaunch ps --all"));
  EXPECT_EQ(FindJob({}, "last").error().code, ExitCode::kUsage);
}

TEST(JobViewTest, PrintsTableLineForEachJob) {
  const JobView running = MakeJobView(Record("a"), false, {Running(30), Running(31)});
  const std::string table = JobTable({running}, 1'000'000 + 3 * 60'000, 0);
  EXPECT_EQ(table,
            "JOB  STATE    NODES  RANKS  STEP    DURATION  ENDED  COMMAND\n"
            "a    running  2      4      31/100  3 min     -      --num_nodes 2 train\n");
  const JobView ended = MakeJobView(Record("b"), false, {Ended(137, true)});
  EXPECT_EQ(JobTable({ended}, 2'000'000 + 5 * 60'000, 0),
            "JOB  STATE        NODES  RANKS  STEP  DURATION     ENDED      COMMAND\n"
            "b    ended (137)  2      -      -     16 min 40 s  5 min ago  --num_nodes 2 train\n");
}

TEST(JobViewTest, TableFitsWidth) {
  JobView view = MakeJobView(Record("a"), false, {Running(31)});
  view.record.argv.push_back(std::string(200, 'x'));
  const auto longest = [&](size_t width) {
    std::istringstream table(JobTable({view}, 2'000'000, width));
    size_t length = 0;
    for (std::string line; std::getline(table, line);) length = std::max(length, line.size());
    return length;
  };
  EXPECT_EQ(longest(120), 120u);
  EXPECT_EQ(longest(160), 160u);
  EXPECT_GT(longest(0), 200u);
  EXPECT_LT(longest(10), 100u) << "the beginning of a command is shown all the same";
}

TEST(JobViewTest, JsonHasNullForUnknownValues) {
  const auto jobs =
      nlohmann::json::parse(JobsJson({MakeJobView(Record("a"), false, {Running(30)}),
                                      MakeJobView(Record("b"), false, {Ended(137, true)})}));
  EXPECT_EQ(jobs[0]["state"], "running");
  EXPECT_EQ(jobs[0]["step"], 30);
  EXPECT_TRUE(jobs[0]["exit_code"].is_null());
  EXPECT_EQ(jobs[1]["exit_code"], 137);
  EXPECT_EQ(jobs[1]["ended_unix_ms"], 2'000'000);
  EXPECT_TRUE(jobs[1]["ranks"].is_null());
}

}  // namespace
}  // namespace dslaunch::job_view_test
