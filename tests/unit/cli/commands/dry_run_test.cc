#include "cli/commands/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/plan/job_program.h"
#include "cli/plan/job_spec.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::dry_run_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class DryRunTest : public ::testing::Test {
 protected:
  DryRunTest() {
    options_.hostfile = "hf";
    options_.program = {"/bin/echo", "two words", "--api_key=hidden", "it's", "line\nbreak"};
    file_ =
        "hosts:\n"
        "- {name: a, address: 10.0.0.1, user: alice, port: 2222, slots: 2, labels: {rack: r7},\n"
        "   env: {MODE: fast, HF_TOKEN: s3cret}}\n"
        "- {name: b, slots: 1}\n- {name: c, slots: 4, spare: true}\n";
    info_.cores = 8;
    program_info_.cwd = "/";
    program_info_.environment = {"HOME=/h", "NCCL_DEBUG=INFO"};
  }

  Result<DryRun> Try() {
    DryRunRequest request;
    SessionOptions& session = request.session;
    std::optional<std::vector<Host>> hosts;
    if (options_.hostfile) hosts = *ParseHostfile(file_, "hf");
    const auto plan = MakeLaunchPlan(options_, hosts, info_);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    session.plan = *plan;
    session.job = *MakeJobSpec(options_, session.plan, {});
    session.shown.shown_ranks = options_.shown_ranks;
    const TrainerProgram trainer{"/bin/true", recipe_};
    const auto job =
        MakeJobProgram(options_, session.plan, program_info_, recipe_.empty() ? nullptr : &trainer);
    EXPECT_TRUE(job.ok()) << job.error().message;
    *session.job.mutable_ranks()->mutable_program() = job->program;
    request.info = info_;
    request.environment = program_info_.environment;
    request.recipe_source = recipe_.empty() ? "" : "/recipes/mine.yaml";
    return DryRun::Make(std::move(request));
  }
  DryRun Make() {
    Result<DryRun> run = Try();
    EXPECT_TRUE(run.ok()) << run.error().message;
    return *std::move(run);
  }

  LaunchOptions options_;
  std::string file_;
  PlanInfo info_;
  ProgramInfo program_info_;
  std::string recipe_;
};

TEST_F(DryRunTest, JsonDescribesEveryRank) {
  options_.env = {"GREETING=$(x) `y`", "LR=0.1"};
  options_.master_port = 29500;
  const Json plan = Json::parse(Make().ToJson());
  EXPECT_EQ(plan["dry_run"], true);
  EXPECT_EQ(plan["launcher"], "ssh");
  EXPECT_EQ(plan["device"], nullptr) << "unknown before the nodes are asked";
  EXPECT_EQ(plan["world_size"], 3);
  ASSERT_EQ(plan["nodes"].size(), 3u);
  const Json& a = plan["nodes"][0];
  EXPECT_EQ(a["host"], "10.0.0.1");
  EXPECT_EQ(a["port"], 2222);
  EXPECT_EQ(a["user"], "alice");
  EXPECT_EQ(a["labels"]["rack"], "r7");
  EXPECT_EQ(plan["nodes"][2]["spare"], true);
  EXPECT_EQ(plan["nodes"][2]["first_rank"], nullptr);
  ASSERT_EQ(plan["ranks"].size(), 3u);
  const Json& second = plan["ranks"][1];
  EXPECT_EQ(second["node"], "a");
  EXPECT_EQ(second["local_rank"], 1);
  EXPECT_THAT(second["argv"].get<std::vector<std::string>>(),
              ElementsAre("/bin/echo", "two words", "--api_key=***", "it's", "line\nbreak"));
  const std::map<std::string, Json> expected = {{"RANK", "1"},
                                                {"LOCAL_RANK", "1"},
                                                {"WORLD_SIZE", "3"},
                                                {"GROUP_RANK", "0"},
                                                {"LOCAL_WORLD_SIZE", "2"},
                                                {"GROUP_WORLD_SIZE", "2"},
                                                {"MODE", "***"},
                                                {"HF_TOKEN", "***"},
                                                {"GREETING", "***"},
                                                {"LR", "0.1"},
                                                {"NCCL_DEBUG", "INFO"},
                                                {"MASTER_PORT", "29500"},
                                                {"MASTER_ADDR", nullptr},
                                                {"DSLAUNCH_JOB_ID", nullptr},
                                                {"OMP_NUM_THREADS", nullptr},
                                                {"PYTHONUNBUFFERED", "1"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(second["env"][name], value) << name;
  EXPECT_FALSE(plan["ranks"][2]["env"].contains("MODE"));
  EXPECT_EQ(plan["ranks"][2]["env"]["GROUP_RANK"], "1");
  for (const auto& [name, value] : second["env"].items()) {
    EXPECT_TRUE(!value.is_null() || plan["null_means"].contains(name)) << name;
  }
}

TEST_F(DryRunTest, TextListsCommonSettingsOnce) {
  const std::string text = Make().ToText();
  EXPECT_THAT(text, HasSubstr("2 nodes with unequal slots = 3 ranks (ssh, device chosen at the "
                              "start): a(2) b(1), spare: c(4)"));
  EXPECT_THAT(text, HasSubstr("  a     alice@10.0.0.1 port 2222  0-1    0-1      rack=r7\n"));
  EXPECT_THAT(text, HasSubstr("  c     c                         spare  0-3\n"));
  EXPECT_THAT(text, HasSubstr("  1     a     1      /bin/echo 'two words' '--api_key=***' "
                              "'it'\\''s' $'line\\nbreak'\n"));
  EXPECT_THAT(text, HasSubstr("\n  NCCL_DEBUG=INFO\n"));
  EXPECT_THAT(text, HasSubstr("\n  MASTER_PORT=(a free port there, taken at the start)\n"));
  EXPECT_THAT(text, HasSubstr("HF_TOKEN='***'"));
  EXPECT_THAT(text, HasSubstr("  rank 2  LOCAL_RANK=0 RANK=2 ROLE_RANK=2\n"));
  EXPECT_THAT(text, HasSubstr("from the first signal to SIGKILL"));
  EXPECT_THAT(text, Not(HasSubstr("s3cret")));
  EXPECT_THAT(text, Not(HasSubstr("hidden")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(DryRunTest, ChosenSlotsSetVisibleDevices) {
  file_ = "a slots=8\nb slots=8\n";
  options_.include = "a:2,5@b";
  Json plan = Json::parse(Make().ToJson());
  EXPECT_EQ(plan["nodes"][0]["devices"], Json({2, 5}));
  EXPECT_EQ(plan["nodes"][1]["devices"], nullptr);
  EXPECT_EQ(plan["ranks"][1]["env"]["CUDA_VISIBLE_DEVICES"], "2,5");
  EXPECT_EQ(plan["ranks"][2]["env"]["CUDA_VISIBLE_DEVICES"], nullptr);
  options_.device = DeviceChoice::kCpu;
  plan = Json::parse(Make().ToJson());
  EXPECT_EQ(plan["device"], "cpu");
  EXPECT_EQ(plan["ranks"][1]["env"]["CUDA_VISIBLE_DEVICES"], "");
  options_.virtual_local_rank = true;
  options_.device = DeviceChoice::kCuda;
  plan = Json::parse(Make().ToJson());
  EXPECT_EQ(plan["ranks"][1]["env"]["CUDA_VISIBLE_DEVICES"], "5");
  EXPECT_EQ(plan["ranks"][1]["env"]["LOCAL_RANK"], "0");
}

TEST_F(DryRunTest, ResolvesLocalJobCompletely) {
  options_.hostfile.reset();
  options_.num_gpus = 4;
  options_.device = DeviceChoice::kCpu;
  const Json plan = Json::parse(Make().ToJson());
  EXPECT_EQ(plan["device"], "cpu");
  EXPECT_EQ(plan["ranks"][3]["env"]["MASTER_ADDR"], "127.0.0.1");
  EXPECT_EQ(plan["ranks"][3]["env"]["OMP_NUM_THREADS"], "2");
  options_.program = {"no-such-program-here"};
  const Result<DryRun> run = Try();
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ExitCode::kNotFound) << "the job would end so too";
}

TEST_F(DryRunTest, ShowsScriptWithInterpreter) {
  const TempDir dir;
  program_info_.cwd = dir.path();
  dir.Write("train.py", "parser.add_argument('--local_rank', type=int)\n");
  options_.program = {"train.py", "--lr", "1"};
  DryRun run = Make();
  EXPECT_THAT(run.ToText(), HasSubstr("  1     a     1      python3 -u train.py --local_rank=1 "
                                      "--lr 1\n"));
  EXPECT_THAT(run.ToText(), HasSubstr("by each node's own python: PYTHON_EXEC"));
}

TEST_F(DryRunTest, ShowsRecipeAndStagesOfTraining) {
  options_.mode = LaunchOptions::Mode::kTrain;
  recipe_ = R"({"model": {"type": "gpt2"}, "data": {"api_key": "s3cret"},
                "engine": {"pipeline": {"stages": 3}, "zero_optimization": {"stage": 1}}})";
  DryRun run = Make();
  EXPECT_THAT(run.ToText(), HasSubstr("recipe: /recipes/mine.yaml\n"));
  EXPECT_THAT(run.ToText(),
              HasSubstr("engine: 3 ranks, ZeRO stage 1, 3 pipeline stages x 1 replica\n"));
  EXPECT_THAT(run.ToText(), HasSubstr("    stage 2: ranks 2\n"));
  EXPECT_THAT(run.ToText(), HasSubstr("DSLAUNCH_RECIPE=(the recipe, as JSON)"));
  const Json train = Json::parse(run.ToJson())["train"];
  EXPECT_EQ(train["pipeline_stages"], 3);
  EXPECT_EQ(train["recipe"]["data"]["api_key"], "***");
  EXPECT_THAT(run.ToJson(), Not(HasSubstr("s3cret")));
  recipe_ = R"({"engine": {"pipeline": {"stages": 2}}})";
  EXPECT_THAT(Make().ToText(), HasSubstr("the trainer will refuse it"));
}

TEST_F(DryRunTest, ListsRanksOfPartsOfLayers) {
  options_.mode = LaunchOptions::Mode::kTrain;
  file_ = "a slots=8\n";
  recipe_ = R"({"engine": {"pipeline": {"stages": 2}, "tensor_parallel": {"autotp_size": 2}}})";
  const DryRun run = Make();
  EXPECT_THAT(run.ToText(), HasSubstr("2 pipeline stages x 2 replicas x 2 parts of each layer\n"
                                      "    stage 0, part 0: ranks 0 2\n"
                                      "    stage 0, part 1: ranks 1 3\n"
                                      "    stage 1, part 0: ranks 4 6\n"));
  EXPECT_EQ(Json::parse(run.ToJson())["train"]["tensor_parallel"], 2);
}

TEST_F(DryRunTest, ListsRanksOfStagesInRankOrder) {
  options_.mode = LaunchOptions::Mode::kTrain;
  file_ = "a slots=4\n";
  const std::pair<const char*, const char*> cases[] = {
      {"pipe_data", "    stage 0: ranks 0 1\n    stage 1: ranks 2 3\n"},
      {"data_pipe", "    stage 0: ranks 0 2\n    stage 1: ranks 1 3\n"}};
  for (const auto& [order, lines] : cases) {
    recipe_ =
        R"({"engine": {"pipeline": {"stages": 2, "rank_order": ")" + std::string(order) + R"("}}})";
    const DryRun run = Make();
    EXPECT_THAT(run.ToText(), HasSubstr(lines)) << order;
    EXPECT_EQ(Json::parse(run.ToJson())["train"]["rank_order"], order);
  }
}

TEST_F(DryRunTest, HandlesThousandsOfNodes) {
  file_.clear();
  for (int i = 0; i < 2'000; ++i) file_ += "node" + std::to_string(i) + " slots=8\n";
  const DryRun run = Make();
  const std::string text = run.ToText();
  EXPECT_THAT(text, HasSubstr("2000 nodes x 8 slots = 16000 ranks"));
  EXPECT_THAT(text, HasSubstr("rank 15999"));
}

}  // namespace
}  // namespace dslaunch::dry_run_test
