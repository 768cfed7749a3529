#include "cli/report/report_page.h"

#include <gtest/gtest.h>

#include "cli/report/report_files.h"
#include "tests/support/html_tags.h"

namespace dslaunch::report_page_test {
namespace {

// Returns whether the page has `text`; keeps the page out of failure messages.
bool Has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

std::string Windows(int rank, double own_s, const std::string& more = "") {
  std::string text;
  for (int step = 10; step <= 200; step += 10) {
    text += "{\"step\":" + std::to_string(step) +
            ",\"step_s\":0.5,\"compute_s\":" + std::to_string(own_s);
    if (rank == 0) {
      text += ",\"loss\":" + std::to_string(100.0 / step) +
              ",\"lr\":0.001,\"grad_norm\":1,\"loss_scale\":65536,\"skipped\":" +
              (step == 50 ? "true" : "false") + ",\"tokens_per_s\":1000,\"mfu\":0.4," +
              "\"memory\":{\"parameters\":1048576,\"peak_rss\":4194304}";
    }
    text += more + "}\n";
  }
  return text;
}

ReportData Whole() {
  ReportData data;
  data.job_id = "20261121-100000-abcdef";
  data.command = "dslaunch train gpt2_tiny";
  data.state = "ended (0)";
  data.ended = true;
  data.started_unix_ms = 1'790'000'000'000;
  data.ended_unix_ms = 1'790'000'090'000;
  data.made_unix_ms = 1'790'000'100'000;
  data.nodes = {"node1", "node2"};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    RankFiles files;
    files.node = data.nodes[rank];
    files.rank = rank;
    files.metrics = ReadMetrics(Windows(static_cast<int>(rank), rank == 0 ? 0.3 : 0.4));
    files.profile = ReadRankProfile(
        R"({"steps":2,"wall_s":1,"operators":[{"name":"aten::mm","calls":4,"self_s":0.5}],)"
        R"("communication":{"total_s":0.2,"hidden_s":0.15,"kinds":[{"name":"all_reduce","calls":2,)"
        R"("bytes":1000,"s":0.2}]}})");
    files.trace_path = "/jobs/trace.json";
    data.ranks.push_back(files);
  }
  data.ranks[0].run = ReadRunInfo(
      R"({"model":"gpt2","parameters":1000000,"dtype":"fp32","world_size":2,"zero_stage":1,)"
      R"("memory_plan":{"parameters":1048576}})");
  return data;
}

TEST(ReportPageTest, ContainsKeyFactsAndAllSections) {
  const std::string page = ReportPage(Whole());
  for (const char* text :
       {"<h1>gpt2</h1>", "ended (0)", "20261121-100000-abcdef", "dslaunch train gpt2_tiny",
        "<dd>90 s</dd>", "1M parameters, fp32, ZeRO stage 1", "From 10 to 0.5 at step 200.",
        "1 window with a skipped step", "tokens/s",
        "A straggler: rank 1 (node2) takes 400 ms, 33% more.", "aten::mm", "all_reduce",
        "75% of it is hidden", "<td class=\"n\">1 MiB</td><td class=\"n\">1 MiB</td>",
        "/jobs/trace.json"}) {
    EXPECT_TRUE(Has(page, text)) << text;
  }
  for (const char* section : {"loss", "lr", "grad_norm", "loss_scale", "throughput", "mfu",
                              "step_time", "operators", "communication", "memory", "traces"}) {
    EXPECT_TRUE(Has(page, "id=\"" + std::string(section) + "\""));
  }
  EXPECT_FALSE(Has(page, "id=\"cause\""));
  EXPECT_FALSE(Has(page, "id=\"left_out\""));
}

TEST(ReportPageTest, ShowsAgeOfNewestCopyInMemory) {
  ReportData data = Whole();
  EXPECT_FALSE(Has(ReportPage(data), "Copy in memory"));
  data.copied_step = 40;
  data.copied_unix_ms = data.made_unix_ms - 12'000;
  const std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "Copy in memory"));
  EXPECT_TRUE(Has(page, "step 40"));
  EXPECT_TRUE(Has(page, "12 s before this report"));
}

TEST(ReportPageTest, ShowsResultsOfEvaluations) {
  ReportData data = Whole();
  EXPECT_FALSE(Has(ReportPage(data), "On evaluation data"));
  const std::string first = R"({"step":100,"eval":{"loss":1.5,"accuracy":0.5,"samples":40}})";
  data.ranks[0].metrics = ReadMetrics(Windows(0, 0.3) + first + "\n");
  std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "<dt>Accuracy</dt><dd>50.00%<small>loss 1.5, at step 100</small>"));
  EXPECT_TRUE(Has(page, "On evaluation data")) << "a point in the plot of the loss";
  EXPECT_FALSE(Has(page, "id=\"accuracy\"")) << "a plot of one point";

  data.ranks[0].metrics =
      ReadMetrics(Windows(0, 0.3) + first + "\n" +
                  R"({"step":200,"eval":{"loss":0.75,"accuracy":0.87125,"samples":40}})" + "\n");
  page = ReportPage(data);
  EXPECT_TRUE(Has(page, "<dt>Accuracy</dt><dd>87.12%<small>loss 0.75, at step 200</small>"));
  EXPECT_TRUE(Has(page, "id=\"accuracy\""));

  data.ranks[0].metrics = ReadMetrics("{\"step\":60,\"eval\":{\"loss\":2,\"perplexity\":7.4}}\n");
  page = ReportPage(data);
  EXPECT_TRUE(Has(page, "<dt>Perplexity</dt><dd>7.4<small>loss 2, at step 60</small>"));
  EXPECT_FALSE(Has(page, "No rank has left a metrics.jsonl")) << "it was evaluated only";
}

TEST(ReportPageTest, ShowsCustomMetrics) {
  ReportData data = Whole();
  EXPECT_FALSE(Has(ReportPage(data), "id=\"evaluation\""));
  const std::string first = R"({"step":100,"eval":{"loss":1.5,"top_3":0.5,"margin":-2}})";
  data.ranks[0].metrics = ReadMetrics(Windows(0, 0.3) + first + "\n");
  std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "<td class=\"name\">top_3</td><td class=\"n\">0.5</td>"));
  EXPECT_TRUE(Has(page, "<td class=\"name\">margin</td><td class=\"n\">-2</td>"));
  EXPECT_FALSE(Has(page, "id=\"evaluation_1\"")) << "a plot of one point";
  data.ranks[0].metrics = ReadMetrics(Windows(0, 0.3) + first + "\n" +
                                      R"({"step":200,"eval":{"loss":1,"top_3":0.75}})" + "\n");
  page = ReportPage(data);
  EXPECT_TRUE(Has(page, "id=\"evaluation_1\"><h2>top_3 by step</h2>"));
  EXPECT_FALSE(Has(page, "id=\"evaluation_2\""));
  EXPECT_TRUE(
      Has(page, "<td class=\"n\">200</td><td class=\"n\">0.5</td><td class=\"n\">0.75</td>"));
}

TEST(ReportPageTest, ShowsNegativeBytesAsFreed) {
  ReportData data = Whole();
  for (RankFiles& files : data.ranks) files.profile.reset();
  data.ranks[0].profile = ReadRankProfile(
      R"({"steps":1,"operators":[{"name":"aten::mm","calls":1,"self_s":1,"self_bytes":-416870}]})");
  const std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "frees 407 KiB"));
  EXPECT_FALSE(Has(page, ">-"));
}

TEST(ReportPageTest, ShowsTrainingSettings) {
  ReportData data = Whole();
  data.ranks[0].run = ReadRunInfo(
      R"({"model":"mlp","batch":256,"micro_batch":32,"accumulation_steps":2,"optimizer":"Adam",)"
      R"("lr":0.002,"data":"/data/fashion-mnist"})");
  EXPECT_TRUE(Has(ReportPage(data),
                  "<p>Batch 256 = 32 x 2 x 4, Adam, lr 0.002; data /data/fashion-mnist</p>"));
}

TEST(ReportPageTest, RefersToNoOtherFiles) {
  const std::string page = ReportPage(Whole());
  EXPECT_TRUE(Has(page, "content=\"default-src 'none'; style-src 'unsafe-inline'\""));
  for (const char* text :
       {"<script", "<link", "<img", " src=", " href=", "url(", "@import", "http:", "https:"})
    EXPECT_FALSE(Has(page, text)) << text;
}

TEST(ReportPageTest, ExplainsHowToRecordMissingData) {
  ReportData data = Whole();
  data.ranks.clear();
  std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "No rank has left a metrics.jsonl"));
  EXPECT_TRUE(Has(page, "DSLAUNCH_RANK_DIR"));
  EXPECT_TRUE(Has(page, "dslaunch train --profile"));
  EXPECT_TRUE(Has(page, "&quot;memory_breakdown&quot;: true"));
  EXPECT_FALSE(Has(page, "<svg"));
  data.ranks.resize(1);
  data.ranks[0].metrics = ReadMetrics("{\"step\":1,\"loss\":NaN}\n{\"step\":2,\"loss\":2}\nbad\n");
  page = ReportPage(data);
  EXPECT_TRUE(Has(page, "1 window had a loss that was not finite"));
  EXPECT_TRUE(Has(page, "run.peak_tflops"));
  EXPECT_TRUE(Has(page, "1 line of the ranks&#39; metrics could not be understood"));
  EXPECT_TRUE(Has(page, "<circle")) << "a single point is a dot";
}

TEST(ReportPageTest, ShowsFailureAndRestarts) {
  ReportData data = Whole();
  data.state = "ended (137)";
  data.exit_code = 137;
  data.events = ReadJobEvents(
      "{\"t\":1790000001,\"event\":\"started\",\"attempt\":1,\"world_size\":4,\"nodes\":[\"node1\"]"
      "}"
      "\n"
      "{\"t\":1790000050,\"event\":\"restarting\",\"attempt\":1,\"cause\":{\"message\":\"node2 is "
      "lost\"}}\n"
      "{\"t\":1790000055,\"event\":\"started\",\"attempt\":2,\"world_size\":2,\"nodes\":[\"node1\"]"
      "}"
      "\n"
      "{\"t\":1790000090,\"event\":\"end\",\"exit_code\":137,\"cause\":{\"message\":\"rank 1 was "
      "killed\",\"evidence\":\"out of <memory>\"}}\n");
  RankFiles again = data.ranks[0];
  again.attempt = 2;
  data.ranks.push_back(again);
  data.troubles = {"node3: connection refused"};
  const std::string page = ReportPage(data);
  for (const char* text :
       {"First cause", "rank 1 was killed", "<code>out of &lt;memory&gt;</code>", "node2 is lost",
        ">restart 1</text>", "with 1 restart</small>", "node3: connection refused"})
    EXPECT_TRUE(Has(page, text)) << text;
}

TEST(ReportPageTest, DrawsManyRanksAsBandWithSlowest) {
  ReportData data = Whole();
  data.ranks.clear();
  for (uint32_t rank = 0; rank < 40; ++rank) {
    RankFiles files;
    files.rank = rank;
    files.metrics = ReadMetrics(Windows(static_cast<int>(rank), rank == 17 ? 0.4 : 0.3));
    data.ranks.push_back(files);
  }
  const std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "<polygon class=\"band\""));
  EXPECT_TRUE(Has(page, "A straggler: rank 17 takes 400 ms, 33% more."));
  EXPECT_TRUE(Has(page, "and 24 more ranks."));
}

// Hostile names must not add tags to the page.
TEST(ReportPageTest, EscapesHostileNames) {
  const std::string evil =
      R"(</code></td><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&)";
  ReportData data = Whole();
  std::string json = R"({"model":"EVIL","dtype":"EVIL","memory_plan":{"EVIL":5},"steps":1,)"
                     R"("operators":[{"name":"EVIL","self_s":1}],)"
                     R"("communication":{"total_s":1,"kinds":[{"name":"EVIL","s":1}]}})";
  for (size_t at; (at = json.find("EVIL")) != std::string::npos;) json.replace(at, 4, evil);
  data.ranks[0].run = ReadRunInfo(json);
  data.ranks[0].profile = ReadRankProfile(json);
  ASSERT_TRUE(data.ranks[0].run && data.ranks[0].profile);
  data.ranks[0].metrics = ReadMetrics(Windows(0, 1, ",\"memory\":{\"" + evil + "\":7}"));
  for (std::string* text : {&data.command, &data.job_id, &data.state, &data.detail,
                            &data.ranks[0].node, &data.ranks[0].trace_path, &data.nodes[0]})
    *text = evil;
  data.troubles = {evil};
  data.events.starts = {{1, 1, 2, {evil}}, {2, 2, 2, {evil}}};
  data.events.restarts = {{1, evil, evil}};
  data.events.cause = data.events.evidence = evil;
  data.ranks[0].run->optimizer = data.ranks[0].run->data = evil;
  const std::string page = ReportPage(data);
  EXPECT_TRUE(Has(page, "&lt;script&gt;alert(1)"));
  EXPECT_EQ(FirstForeignTag(page), "");
}

}  // namespace
}  // namespace dslaunch::report_page_test
