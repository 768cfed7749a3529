#include "cli/session/summary_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

namespace dslaunch::summary_json_test {
namespace {

TEST(SummaryJsonTest, HasFactsOfClosingBlock) {
  JobSummary summary;
  summary.job_id = "job1";
  summary.nodes = {{"node1", "done", true, "/logs/1"}, {"node2", "lost", false, ""}};
  summary.num_nodes = 1;
  summary.world_size = 3;
  summary.duration_s = 1.5;
  summary.cause.kind = EndCause::Kind::kWorkerSignal;
  summary.cause.node = "node1";
  summary.cause.rank = 1;
  summary.cause.local_rank = 1;
  summary.cause.signal = SIGKILL;
  summary.cause.out_of_memory = true;
  summary.cause.evidence = "oom_kill 1";
  summary.cause.last_lines = "a\n\xff\"b\"\n";
  summary.cause.log_path = "/logs/1/stderr.log";
  summary.workers = {{2, false, 0, 0, false, false},
                     {1, true, 0, SIGKILL, false, false},
                     {0, true, 1, 0, false, true, "Connection closed by peer"}};
  summary.left = {{"node1", 77, "python3", "D", "nfs_wait"}};
  summary.restarts = 2;
  summary.attempts = 3;
  summary.exit_code = 137;
  const std::string text = SummaryJson(summary);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(R"({
    "job": "job1", "exit_code": 137, "saved_on_request": false, "result": null,
    "cause": {"kind": "worker_signal", "node": "node1", "rank": 1, "local_rank": 1, "exit_code": 0,
              "signal": 9, "signal_name": "SIGKILL",
              "message": "rank 1 (node1, local rank 1) was killed by SIGKILL, out of memory, after 1.5 s",
              "evidence": "oom_kill 1", "victim": false, "timed_out": false,
              "out_of_memory": true, "core_dumped": false, "restart": "unknown", "restart_reason": "", "restart_line": "",
              "last_lines": ["a", "\ufffd\"b\""], "log": "/logs/1/stderr.log"},
    "victims": [0],
    "ranks": [{"rank": 0, "reported": true, "exit_code": 1, "signal_name": null, "stopped": false,
               "evidence": "Connection closed by peer"},
              {"rank": 1, "reported": true, "exit_code": null, "signal_name": "SIGKILL", "stopped": false,
               "evidence": ""},
              {"rank": 2, "reported": false}],
    "nodes": [{"name": "node1", "state": "done", "had_ranks": true, "log_dir": "/logs/1",
               "left": [{"pid": 77, "command": "python3", "state": "D", "waits_in": "nfs_wait"}]},
              {"name": "node2", "state": "lost", "had_ranks": false, "log_dir": "", "left": []}],
    "remarks": [], "restarts": 2, "attempts": 3, "goodput": null, "duration_s": 1.5})"));
}

TEST(SummaryJsonTest, SuccessHasNoCause) {
  JobSummary summary;
  summary.result = {{"step", 938}, {"loss", 0.25}, {"perplexity", INFINITY}};
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_TRUE(json.at("cause").is_null());
  EXPECT_EQ(json.at("result").dump(), R"({"loss":0.25,"perplexity":null,"step":938})");
}

TEST(ErrorFileJsonTest, MatchesErrorFileOfTorchelastic) {
  JobSummary summary;
  summary.cause.kind = EndCause::Kind::kWorkerExit;
  summary.cause.node = "node1";
  summary.cause.rank = 1;
  summary.cause.exit_code = 3;
  summary.cause.evidence = "ValueError: no";
  summary.cause.last_lines = "Traceback\nValueError: no\n";
  summary.exit_code = 3;
  const auto message = nlohmann::json::parse(ErrorFileJson(summary, 77))["message"];
  EXPECT_EQ(message["message"], "ValueError: no");
  EXPECT_EQ(message["errorCode"], 3);
  EXPECT_EQ(message["extraInfo"]["py_callstack"], "Traceback\nValueError: no\n");
  EXPECT_EQ(message["extraInfo"]["timestamp"], "77");
  summary.cause.signal = SIGSEGV;
  EXPECT_EQ(nlohmann::json::parse(ErrorFileJson(summary, 77))["message"]["errorCode"], -11);
}

TEST(SummaryJsonTest, GoodputReadsBackUnchanged) {
  JobSummary summary;
  summary.goodput.emplace();
  summary.goodput->wall_us = 2'000'000;
  summary.goodput->ranks = 3;
  summary.goodput->times[GoodputBucket::kProductive] = 4'500'000;
  summary.goodput->times[GoodputBucket::kStart] = 1'500'000;
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["goodput"]["seconds"]["productive"], 4.5);
  EXPECT_EQ(json["goodput"]["productive_share"], 0.75);
  const std::optional<JobSummary> read = ReadSummaryJson(json, /*is_local=*/true);
  ASSERT_TRUE(read && read->goodput);
  EXPECT_EQ(read->goodput->times, summary.goodput->times);
  EXPECT_EQ(read->goodput->wall_us, 2'000'000u);
  EXPECT_EQ(read->goodput->ranks, 3u);
  EXPECT_EQ(GoodputText(*read->goodput), "75.0 % productive of 3 ranks x 2 s: start 25.0 %");
}

}  // namespace
}  // namespace dslaunch::summary_json_test
