#include "cli/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report_files.h"
#include "tests/support/report_document.h"

namespace dslaunch::report_page_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json Document(const ReportData& data) { return DocumentIn(ReportPage(data)); }

// Returns a lead or a cell, which may have several parts, as one text.
std::string Text(const nlohmann::json& text) {
  if (text.is_string()) return text;
  if (text.contains("text")) return text["text"];
  std::string joined;
  for (const nlohmann::json& part : text) joined += Text(part);
  return joined;
}

std::string LeadOf(const nlohmann::json& document, const std::string& id) {
  return Text(SectionOf(document, id)["lead"]);
}

// Returns the texts of that row of a table whose first cell is `name`; empty if there is none.
std::vector<std::string> RowOf(const nlohmann::json& document, const std::string& id,
                               const std::string& name) {
  const nlohmann::json table = PartOf(document, id, "table");
  if (table.is_null()) return {};
  for (const nlohmann::json& row : table["rows"]) {
    if (Text(row[0]) != name) continue;
    std::vector<std::string> texts;
    for (const nlohmann::json& cell : row) {
      if (!cell.contains("bars")) texts.push_back(Text(cell));
    }
    return texts;
  }
  return {};
}

// Returns "value / note" of the tile `label`; "" if there is none.
std::string TileOf(const nlohmann::json& document, const std::string& label) {
  for (const nlohmann::json& tile : document["tiles"]) {
    if (tile["label"] == label)
      return std::string(tile["value"]) + " / " + std::string(tile["note"]);
  }
  return "";
}

std::vector<std::string> LinesOf(const nlohmann::json& document, const std::string& id) {
  std::vector<std::string> names;
  const nlohmann::json plot = PartOf(document, id, "plot");
  if (plot.is_null()) return {};
  for (const nlohmann::json& line : plot["lines"]) names.push_back(line["name"]);
  return names;
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
  const nlohmann::json document = Document(Whole());
  EXPECT_EQ(document["heading"], "gpt2");
  EXPECT_EQ(document["job_id"], "20261121-100000-abcdef");
  EXPECT_EQ(document["state"], nlohmann::json({{"text", "ended (0)"}, {"look", "good"}}));
  EXPECT_EQ(document["command"], "dslaunch train gpt2_tiny");
  EXPECT_EQ(TileOf(document, "Duration"), "90 s / ");
  EXPECT_EQ(TileOf(document, "Model"), "gpt2 / 1M parameters, fp32, ZeRO stage 1");
  EXPECT_EQ(LeadOf(document, "loss"), "From 10 to 0.5 at step 200.");
  EXPECT_EQ(LeadOf(document, "loss_scale"), "✕ 1 window with a skipped step.");
  EXPECT_EQ(PartOf(document, "throughput", "plot")["unit"], "tokens/s");
  EXPECT_THAT(LeadOf(document, "step_time"),
              HasSubstr("A straggler: rank 1 (node2) takes 400 ms, 33% more."));
  EXPECT_THAT(RowOf(document, "operators", "aten::mm"),
              ElementsAre("aten::mm", "2", "250 ms", "100%", ""));
  EXPECT_EQ(RowOf(document, "communication", "rank 0").at(3), "75%");
  EXPECT_THAT(LeadOf(document, "communication"), HasSubstr("75% of it is hidden"));
  EXPECT_THAT(RowOf(document, "memory", "parameters"),
              ElementsAre("parameters", "1 MiB", "1 MiB", "±0%"));
  EXPECT_THAT(RowOf(document, "traces", "rank 1 (node2)").at(1), HasSubstr("/jobs/trace.json"));
  for (const char* id : {"loss", "lr", "grad_norm", "loss_scale", "throughput", "mfu", "step_time",
                         "operators", "communication", "memory", "traces"})
    EXPECT_TRUE(SectionOf(document, id).contains("parts")) << id;
  EXPECT_FALSE(document.contains("cause"));
  EXPECT_FALSE(document.contains("left_out"));
}

TEST(ReportPageTest, PlotsNumbersAsReported) {
  const nlohmann::json loss = PartOf(Document(Whole()), "loss", "plot");
  const nlohmann::json& points = loss["lines"][0]["pieces"][0];
  ASSERT_EQ(points.size(), 20u);
  EXPECT_EQ(points[0], nlohmann::json({10, 10.0}));
  EXPECT_EQ(points[19], nlohmann::json({200, 0.5}));
}

TEST(ReportPageTest, ShowsAgeOfNewestCopyInMemory) {
  ReportData data = Whole();
  EXPECT_EQ(TileOf(Document(data), "Copy in memory"), "");
  data.copied_step = 40;
  data.copied_unix_ms = data.made_unix_ms - 12'000;
  EXPECT_EQ(TileOf(Document(data), "Copy in memory"), "step 40 / 12 s before this report");
}

TEST(ReportPageTest, ShowsResultsOfEvaluations) {
  ReportData data = Whole();
  EXPECT_THAT(LinesOf(Document(data), "loss"), ElementsAre("Loss"));
  const std::string first = R"({"step":100,"eval":{"loss":1.5,"accuracy":0.5,"samples":40}})";
  data.ranks[0].metrics = ReadMetrics(Windows(0, 0.3) + first + "\n");
  nlohmann::json document = Document(data);
  EXPECT_EQ(TileOf(document, "Accuracy"), "50.00% / loss 1.5, at step 100");
  EXPECT_THAT(LinesOf(document, "loss"), ElementsAre("Loss", "On evaluation data"));
  EXPECT_TRUE(SectionOf(document, "accuracy").is_null()) << "a plot of one point";

  data.ranks[0].metrics =
      ReadMetrics(Windows(0, 0.3) + first + "\n" +
                  R"({"step":200,"eval":{"loss":0.75,"accuracy":0.87125,"samples":40}})" + "\n");
  document = Document(data);
  EXPECT_EQ(TileOf(document, "Accuracy"), "87.12% / loss 0.75, at step 200");
  EXPECT_EQ(PartOf(document, "accuracy", "plot")["number"], "percent");

  data.ranks[0].metrics = ReadMetrics("{\"step\":60,\"eval\":{\"loss\":2,\"perplexity\":7.4}}\n");
  document = Document(data);
  EXPECT_EQ(TileOf(document, "Perplexity"), "7.4 / loss 2, at step 60");
  EXPECT_TRUE(SectionOf(document, "loss").is_null()) << "it was evaluated only";
}

TEST(ReportPageTest, ShowsCustomMetrics) {
  ReportData data = Whole();
  EXPECT_TRUE(SectionOf(Document(data), "evaluation").is_null());
  const std::string first = R"({"step":100,"eval":{"loss":1.5,"top_3":0.5,"margin":-2}})";
  data.ranks[0].metrics = ReadMetrics(Windows(0, 0.3) + first + "\n");
  nlohmann::json document = Document(data);
  EXPECT_THAT(RowOf(document, "evaluation", "top_3"),
              ElementsAre("top_3", "0.5", "100", "0.5", "0.5"));
  EXPECT_EQ(RowOf(document, "evaluation", "margin").at(1), "-2");
  EXPECT_TRUE(SectionOf(document, "evaluation_1").is_null()) << "a plot of one point";
  data.ranks[0].metrics = ReadMetrics(Windows(0, 0.3) + first + "\n" +
                                      R"({"step":200,"eval":{"loss":1,"top_3":0.75}})" + "\n");
  document = Document(data);
  EXPECT_EQ(SectionOf(document, "evaluation_1")["heading"], "top_3 by step");
  EXPECT_TRUE(SectionOf(document, "evaluation_2").is_null());
  EXPECT_THAT(RowOf(document, "evaluation", "top_3"),
              ElementsAre("top_3", "0.75", "200", "0.5", "0.75"));
}

TEST(ReportPageTest, ShowsNegativeBytesAsFreed) {
  ReportData data = Whole();
  for (RankFiles& files : data.ranks) files.profile.reset();
  data.ranks[0].profile = ReadRankProfile(
      R"({"steps":1,"operators":[{"name":"aten::mm","calls":1,"self_s":1,"self_bytes":-416870}]})");
  EXPECT_EQ(RowOf(Document(data), "operators", "aten::mm").at(4), "frees 407 KiB");
}

TEST(ReportPageTest, ShowsTrainingSettings) {
  ReportData data = Whole();
  data.ranks[0].run = ReadRunInfo(
      R"({"model":"mlp","batch":256,"micro_batch":32,"accumulation_steps":2,"optimizer":"Adam",)"
      R"("lr":0.002,"data":"/data/fashion-mnist"})");
  EXPECT_EQ(Document(data)["about"][1],
            "Batch 256 = 32 x 2 x 4, Adam, lr 0.002; data /data/fashion-mnist");
}

TEST(ReportPageTest, RefersToNoOtherFiles) {
  const std::string page = ReportPage(Whole());
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; style-src 'unsafe-inline'; "
                              "script-src 'unsafe-inline'\""));
  for (const char* text : {"<link", "<img", " src=", " href=", "url(", "@import",
                           "https:", "fetch(", "import(", "innerHTML", "XMLHttpRequest"})
    EXPECT_EQ(page.find(text), std::string::npos) << text;
}

TEST(ReportPageTest, ExplainsHowToRecordMissingData) {
  ReportData data = Whole();
  data.ranks.clear();
  nlohmann::json document = Document(data);
  EXPECT_THAT(SectionOf(document, "loss")["why"], HasSubstr("No rank has left a metrics.jsonl"));
  EXPECT_THAT(SectionOf(document, "loss")["why"], HasSubstr("DSLAUNCH_RANK_DIR"));
  EXPECT_THAT(SectionOf(document, "operators")["why"], HasSubstr("dslaunch train --profile"));
  EXPECT_THAT(SectionOf(document, "memory")["why"], HasSubstr("\"memory_breakdown\": true"));
  EXPECT_FALSE(document.contains("cards"));
  data.ranks.resize(1);
  data.ranks[0].metrics = ReadMetrics("{\"step\":1,\"loss\":NaN}\n{\"step\":2,\"loss\":2}\nbad\n");
  document = Document(data);
  EXPECT_THAT(LeadOf(document, "loss"), HasSubstr("1 window had a loss that was not finite"));
  EXPECT_THAT(SectionOf(document, "mfu")["why"], HasSubstr("run.peak_tflops"));
  EXPECT_THAT(
      document["left_out"],
      ElementsAre("1 line of the ranks' metrics could not be understood and were left out."));
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
  const nlohmann::json document = Document(data);
  EXPECT_EQ(document["state"]["look"], "bad");
  EXPECT_EQ(document["cause"], nlohmann::json({{"failed", true},
                                               {"text", "rank 1 was killed"},
                                               {"evidence", "out of <memory>"}}));
  EXPECT_EQ(RowOf(document, "starts", "1").back(), "node2 is lost");
  EXPECT_EQ(PartOf(document, "loss", "plot")["marks"][0]["label"], "restart 1");
  EXPECT_THAT(TileOf(document, "Duration"), HasSubstr("with 1 restart"));
  EXPECT_THAT(document["left_out"], ElementsAre("node3: connection refused"));
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
  const nlohmann::json document = Document(data);
  EXPECT_EQ(PartOf(document, "step_time", "plot")["band"][0], nlohmann::json({10, 0.3, 0.4}));
  EXPECT_THAT(LinesOf(document, "step_time"), ElementsAre("median rank", "rank 17"));
  EXPECT_THAT(LeadOf(document, "step_time"),
              HasSubstr("A straggler: rank 17 takes 400 ms, 33% more."));
  EXPECT_EQ(PartOf(document, "step_time", "table")["more"], "and 24 more ranks.");
}

TEST(ReportPageTest, ShowsStacksOfHang) {
  ReportData data = Whole();
  data.events = ReadJobEvents(
      R"({"t":1,"event":"notice","node":"a","message":"no rank has moved for 5 s\n  rank 1 is <there>)"
      R"(\n  all stacks: dslaunch stacks 2026"})"
      "\n"
      R"({"t":2,"event":"notice","node":"a","message":"the ranks move again"})"
      "\n");
  ASSERT_EQ(data.events.hangs.size(), 1u);
  EXPECT_THAT(std::string(PartOf(Document(data), "hangs", "text")),
              HasSubstr("no rank has moved for 5 s\n  rank 1 is <there>\n"));
}

TEST(ReportPageTest, ShowsGoodputAndPreflight) {
  ReportData data = Whole();
  data.events.goodput = {100, 2, {{"first_step", 20}, {"productive", 150}, {"lost", 30}}};
  data.preflight = ReportedPreflight();
  data.preflight->nodes = {{"node1", {{"send", "9 Gbit/s", false}}, {}},
                           {"node2", {{"send", "1 Gbit/s", true}}, {"send: 1 Gbit/s"}}};
  const nlohmann::json document = Document(data);
  EXPECT_THAT(RowOf(document, "goodput", "first step"), ElementsAre("first step", "10 s", "10%"));
  EXPECT_EQ(PartOf(document, "goodput", "bar"),
            nlohmann::json({{0.1, "c7"}, {0.75, "c2"}, {0.15, "grey"}}));
  const nlohmann::json rows = PartOf(document, "preflight", "table")["rows"];
  EXPECT_EQ(rows[0],
            nlohmann::json({"node2", {{"bad", true}, {"text", "1 Gbit/s"}}, "send: 1 Gbit/s"}));
  EXPECT_EQ(rows[1][1], "9 Gbit/s");
}

// Texts from files must neither end the document nor add an element.
TEST(ReportPageTest, HasOneDocumentThatNoTextCanLeave) {
  const std::string evil =
      R"(</code></td></script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&<!--)";
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
  const nlohmann::json document = DocumentIn(page);
  EXPECT_EQ(document["command"], evil);
  EXPECT_EQ(document["cause"]["evidence"], evil);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_THAT(page, HasSubstr("<title>dslaunch report: &lt;/code>"));
}

}  // namespace
}  // namespace dslaunch::report_page_test
