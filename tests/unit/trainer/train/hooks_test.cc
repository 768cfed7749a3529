// Tests the effects of the train loop and each of its hooks that a user can observe, on a model of
// a few numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "proto/contract/rank_files.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/families/make_model.h"
#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/train_loop.h"

namespace dslaunch::hooks_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kSamples = 16;
constexpr int64_t kFeatures = 6;
constexpr int64_t kHidden = 8;
constexpr int64_t kClasses = 10;
constexpr int64_t kParameters = kFeatures * kHidden + kHidden + kHidden * kClasses + kClasses;

class Numbers : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  std::vector<int64_t> input_shape() const override { return {kFeatures}; }
  Batch Fetch(std::span<const int64_t> indices) const override {
    const at::Tensor rows = at::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()));
    return {(rows.unsqueeze(1) * at::arange(1, kFeatures + 1)).to(at::kFloat) / 50,
            rows.remainder(kClasses)};
  }
};

Recipe ReadRecipe(const json& run, const json& engine, int ranks) {
  json recipe = {
      {"model", {{"type", "mlp"}, {"hidden_size", kHidden}}},
      {"data", {{"type", "csv"}, {"path", "numbers.csv"}}},
      {"run", {{"steps", 4}}},
      {"engine",
       {{"train_batch_size", 4}, {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}}}}};
  recipe["run"].update(run);
  recipe["engine"].update(engine);
  return ParseRecipe(recipe.dump(), "recipe", ranks);
}

// A run of 4 steps on this rank, prepared as train.cc does.
class Prepared {
 public:
  explicit Prepared(const json& run_keys = json::object(), const json& engine_keys = json::object(),
                    ProcessGroup& group = World(), int status_fd = -1)
      : recipe_(ReadRecipe(run_keys, engine_keys, group.world_size())),
        env_(Env(group)),
        data_{std::make_unique<Numbers>(), std::make_unique<Numbers>()},
        schedule_(MakeSchedule(recipe_, kSamples, group.world_size())),
        log_(group.rank(), recipe_.engine.log_level),
        progress_({.rank = group.rank(),
                   .log = log_,
                   .status_fd = status_fd,
                   .metrics_jsonl = recipe_.run.metrics_jsonl,
                   .rank_dir = {}}),
        model_(MakeWholeTrainingModel(recipe_.engine, MakeModel(recipe_.model, {kFeatures}),
                                      std::make_shared<MeshGroups>(group), nullptr)),
        monitors_(MakeMonitors(recipe_.engine.monitors, group.rank())) {
    if (!recipe_.run.checkpoint_dir.empty()) checkpointer_.emplace(recipe_, env_, group, kSamples);
    run_.emplace(TrainRun{.recipe = recipe_,
                          .data = data_,
                          .metrics = metrics_,
                          .schedule = schedule_,
                          .log = log_,
                          .group = group,
                          .training_model = *model_,
                          .progress = progress_,
                          .checkpointer = checkpointer_ ? &*checkpointer_ : nullptr,
                          .deadline = {},
                          .plan = {},
                          .monitors = monitors_.get()});
  }

  const Recipe& recipe() const { return recipe_; }
  const WorkerEnv& env() const { return env_; }
  TrainRun& run() { return *run_; }

  // Trains with hooks before and after the progress hook, which computes losses and samples.
  // Returns the printed text.
  std::string Train(std::unique_ptr<TrainHook> before, std::unique_ptr<TrainHook> after = nullptr) {
    TrainHooks hooks;
    if (before != nullptr) hooks.push_back(std::move(before));
    hooks.push_back(MakeProgressHook());
    if (after != nullptr) hooks.push_back(std::move(after));
    testing::internal::CaptureStdout();
    last_ = TrainSteps(*run_, std::move(hooks));
    return testing::internal::GetCapturedStdout();
  }
  int64_t last() const { return last_; }  // the last step

 private:
  static WorkerEnv Env(const ProcessGroup& group) {
    WorkerEnv env;
    env.rank = env.local_rank = group.rank();
    env.world_size = env.local_world_size = group.world_size();
    env.master_addr = "127.0.0.1";
    return env;
  }

  const Recipe recipe_;
  const WorkerEnv env_;
  const DataSplits data_;
  const UserMetrics metrics_{{}};
  const Schedule schedule_;
  const TrainLog log_;
  Progress progress_;
  const std::unique_ptr<TrainingModel> model_;
  std::optional<Checkpointer> checkpointer_;
  const std::unique_ptr<Monitors> monitors_;
  std::optional<TrainRun> run_;
  int64_t last_ = 0;
};

std::string Content(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A hook that records every call, and stops the run after the step `stop_after`.
class Recorder : public TrainHook {
 public:
  Recorder(std::vector<std::string>& calls, int64_t stop_after)
      : calls_(calls), stop_after_(stop_after) {}

  void AtStart(TrainRun&) override { Note("start"); }
  void BeforeStep(TrainRun&, int64_t step) override { Note("before", step); }
  void AfterSubmit(TrainRun&, int64_t step, const StepOutcome& outcome) override {
    EXPECT_TRUE(outcome.loss.defined());
    Note("submitted", step);
  }
  void AfterResults(TrainRun&, int64_t, const std::vector<StepInfo>& steps) override {
    ASSERT_EQ(steps.size(), 1u);
    Note("results of", steps[0].step);
  }
  void BeforeExchange(TrainRun&, RankWindow&) override { Note("give"); }
  void AfterExchange(TrainRun&, const AllWindows&, int64_t steps) override { Note("take", steps); }
  void AfterStep(TrainRun& run, int64_t step) override {
    Note("after", step);
    if (step == stop_after_) run.stop = {StopRequest::kTimeLimit, 0};
  }
  void AtEnd(TrainRun&) override { Note("end"); }

 private:
  void Note(const std::string& what) { calls_.push_back(what); }
  void Note(const std::string& what, int64_t number) {
    calls_.push_back(what + " " + std::to_string(number));
  }

  std::vector<std::string>& calls_;
  const int64_t stop_after_;
};

TEST(TrainLoopTest, CallsHooksInOrderAndStopsOnRequest) {
  const TempDir dir;
  Prepared prepared(json{{"metrics_jsonl", dir / "metrics.jsonl"}});
  std::vector<std::string> calls;
  prepared.Train(std::make_unique<Recorder>(calls, 2));
  EXPECT_EQ(prepared.last(), 2);
  EXPECT_THAT(calls, ElementsAre("start", "before 1", "submitted 1", "results of 1", "give",
                                 "take 1", "after 1", "before 2", "submitted 2", "results of 2",
                                 "give", "take 1", "after 2", "end"));
}

TEST(ProgressHookTest, WritesStepsToMetricsAndLastToStatusPipe) {
  const TempDir dir;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Prepared prepared(json{{"metrics_jsonl", dir / "metrics.jsonl"}}, json::object(), World(),
                      ends[1]);
    TrainHooks hooks;
    hooks.push_back(MakeProgressHook());
    testing::internal::CaptureStdout();
    TrainSteps(prepared.run(), std::move(hooks));
    testing::internal::GetCapturedStdout();
  }
  const std::vector<std::string> lines = Lines(Content(dir / "metrics.jsonl"));
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const json line = json::parse(lines[i]);
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["samples"], 4 * (i + 1));
    EXPECT_GT(line["loss"].get<double>(), 0);
    EXPECT_GT(line["memory"]["parameters"].get<double>(), 0);
  }
  char text[1 << 16];
  const ssize_t bytes = read(ends[0], text, sizeof text);
  close(ends[0]);
  ASSERT_GT(bytes, 0);
  const std::optional<StatusLine> last =
      StatusLine::Parse(Lines({text, static_cast<size_t>(bytes)}).back());
  ASSERT_TRUE(last);
  EXPECT_EQ(last->step, 4);
  EXPECT_EQ(last->total_steps, 4);
  EXPECT_TRUE(last->loss);
}

TEST(RunInfoHookTest, WritesRunInfo) {
  const TempDir dir;
  setenv(kRankDirVariable, dir.path().c_str(), 1);
  Prepared prepared;
  prepared.Train(MakeRunInfoHook(), MakeFlopsHook(prepared.recipe(), prepared.env()));
  unsetenv(kRankDirVariable);
  const json info = json::parse(Content(dir / "run.json"));
  EXPECT_EQ(info["batch"], prepared.recipe().engine.batch.train_batch_size);
  EXPECT_EQ(info["data"], DataName(prepared.recipe().data));
  EXPECT_EQ(info["model"], "mlp");
  EXPECT_EQ(info["parameters"], kParameters);
  EXPECT_EQ(info["dtype"], "fp32");
  EXPECT_EQ(info["world_size"], 1);
  EXPECT_EQ(info["zero_stage"], 0);
  EXPECT_GT(info["flops_per_step"].get<double>(), 0);
}

TEST(BreakdownHookTest, PrintsBreakdownWithStepLines) {
  Prepared prepared(json::object(), {{"wall_clock_breakdown", true}, {"steps_per_print", 2}});
  const std::string printed = prepared.Train(MakeBreakdownHook(prepared.recipe()));
  EXPECT_THAT(printed, AllOf(HasSubstr("step 2: data "), HasSubstr("step 4: data "),
                             HasSubstr("backward "), HasSubstr("mean step ")));
  EXPECT_THAT(printed, Not(HasSubstr("step 3: data ")));
  EXPECT_EQ(MakeBreakdownHook(ReadRecipe(json::object(), json::object(), 1)), nullptr);
}

TEST(ProfileHookTest, PrintsTableAndTraceOfRequestedSteps) {
  const TempDir dir;
  Prepared prepared(
      json{{"profile", {{"wait", 0}, {"warmup", 1}, {"active", 2}}}, {"trace", dir / "traces"}});
  const std::string printed = prepared.Train(MakeProfileHook(prepared.recipe(), prepared.env()));
  EXPECT_THAT(printed, AllOf(HasSubstr("2 steps"), HasSubstr("aten::"), HasSubstr("rank_0.json")));
  EXPECT_TRUE(json::parse(Content(dir / "traces/rank_0.json")).contains("traceEvents"));
  EXPECT_EQ(MakeProfileHook(ReadRecipe(json::object(), json::object(), 1), prepared.env()),
            nullptr);
}

TEST(ProfileHookTest, WarnsAboutProfileBeyondTheRun) {
  Prepared prepared(json{{"profile", {{"wait", 10}}}});
  EXPECT_THAT(prepared.Train(MakeProfileHook(prepared.recipe(), prepared.env())),
              HasSubstr("no profile: profiling starts at step 12"));
}

TEST(FlopsHookTest, ReportsModulesOfRequestedStep) {
  const TempDir dir;
  Prepared prepared(
      json::object(),
      {{"flops_profiler",
        {{"enabled", true}, {"profile_step", 3}, {"output_file", dir / "flops.txt"}}}});
  std::unique_ptr<TrainHook> hook = MakeFlopsHook(prepared.recipe(), prepared.env());
  // The file is created at once, to check that it can be written.
  EXPECT_EQ(Content(dir / "flops.txt"), "");
  prepared.Train(std::move(hook));
  EXPECT_THAT(Content(dir / "flops.txt"),
              AllOf(HasSubstr("step 3"), HasSubstr("fc1"), HasSubstr("fc2")));
}

TEST(FlopsHookTest, RefusesUnwritableFileBeforeTraining) {
  const TempDir dir;
  const Recipe recipe = ReadRecipe(
      json::object(),
      {{"flops_profiler", {{"enabled", true}, {"output_file", dir / "missing/flops.txt"}}}}, 1);
  ExpectRefused(
      [&] { MakeFlopsHook(recipe, WorkerEnv()); }, ExitCode::kIo,
      AllOf(HasSubstr("engine.flops_profiler.output_file"), HasSubstr("missing/flops.txt")));
}

TEST(MonitorHookTest, WritesLossAndRateAsCsv) {
  const TempDir dir;
  Prepared prepared(
      json::object(),
      {{"csv_monitor", {{"enabled", true}, {"output_path", dir.path()}, {"job_name", "job"}}}});
  prepared.Train(nullptr, MakeMonitorHook());
  const std::vector<std::string> loss = Lines(Content(dir / "job/Train_Samples_train_loss.csv"));
  ASSERT_EQ(loss.size(), 5u);
  EXPECT_EQ(loss[0], "step,Train_Samples_train_loss");
  EXPECT_THAT(loss[1], StartsWith("4,"));
  EXPECT_THAT(loss[4], StartsWith("16,"));
  EXPECT_THAT(Content(dir / "job/Train_Samples_lr.csv"), HasSubstr(",0.1"));
  EXPECT_EQ(MakeMonitors(prepared.recipe().engine.monitors, /*rank=*/1), nullptr);
}

TEST(EvaluationHookTest, ReportsToMetricsMonitorsAndStatusPipe) {
  const TempDir dir;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Prepared prepared(
        json{{"eval_every", 2}, {"metrics_jsonl", dir / "metrics.jsonl"}},
        {{"csv_monitor", {{"enabled", true}, {"output_path", dir.path()}, {"job_name", "job"}}}},
        World(), ends[1]);
    prepared.Train(MakeEvaluationHook(prepared.recipe()));
  }
  std::vector<json> records;
  for (const std::string& line : Lines(Content(dir / "metrics.jsonl"))) {
    const json record = json::parse(line);
    if (!record.contains("eval")) continue;
    EXPECT_FALSE(record.contains("loss")) << "a reader would take it for a step's";
    records.push_back(record);
  }
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]["step"], 2);
  EXPECT_EQ(records[0]["epoch"], 1);
  const json& eval = records[0]["eval"];
  EXPECT_EQ(eval["samples"], 16);
  EXPECT_EQ(eval["accuracy"].get<double>(), eval["correct"].get<double>() / 16);
  EXPECT_GT(eval["loss"].get<double>(), 0);

  EXPECT_THAT(Lines(Content(dir / "job/Eval_Samples_accuracy.csv")),
              ElementsAre("step,Eval_Samples_accuracy", StartsWith("8,")));
  char text[1 << 16];
  const ssize_t bytes = read(ends[0], text, sizeof text);
  close(ends[0]);
  ASSERT_GT(bytes, 0);
  std::vector<StatusLine> told;
  for (const std::string& line : Lines({text, static_cast<size_t>(bytes)})) {
    const std::optional<StatusLine> status = StatusLine::Parse(line);
    if (status && status->event == StatusLine::Event::kEval) told.push_back(*status);
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].step, 2);
  EXPECT_EQ(told[0].results[0].first, "loss");
  EXPECT_NEAR(told[0].results[0].second, eval["loss"].get<double>(), 1e-12);
}

TEST(CommsHookTest, PrintsTableOfExchanges) {
  Prepared prepared(json::object(), {{"comms_logger", {{"enabled", true}}}});
  std::unique_ptr<TrainHook> hook = MakeCommsHook(prepared.recipe());
  hook->AtStart(prepared.run());
  at::Tensor numbers = at::ones({256});
  prepared.run().group.AllReduce(numbers);
  testing::internal::CaptureStdout();
  hook->AtEnd(prepared.run());
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("all_reduce"));
}

TEST(EndReportHookTest, ReportsLongWaitsForData) {
  Prepared prepared;
  prepared.run().progress.Start(prepared.run().schedule, 0);
  prepared.run().data_wait_s = 30;
  testing::internal::CaptureStdout();
  MakeEndReportHook()->AtEnd(prepared.run());
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("waited 30.0 s"));
  prepared.run().data_wait_s = 0.1;
  testing::internal::CaptureStdout();
  MakeEndReportHook()->AtEnd(prepared.run());
  EXPECT_THAT(testing::internal::GetCapturedStdout(), IsEmpty());
}

TEST(EndReportHookTest, PrintsPlanBesideMeasuredMemory) {
  Prepared prepared(json::object(), {{"memory_breakdown", true}});
  prepared.run().plan.parameters = 5 << 20;
  EXPECT_THAT(prepared.Train(MakeEndReportHook()),
              AllOf(HasSubstr("parameters"), HasSubstr("5.0 MiB"), HasSubstr("optimizer")));
}

TEST(ReplicaCheckHookTest, EndsRunWhenWeightsDrift) {
  const auto errors = RunRanks(2, [](const ProcessGroup& ranks) {
    // The group must not be const, because a run that fails to save leaves its group.
    auto& group = const_cast<ProcessGroup&>(ranks);
    Prepared prepared(json{{"check_replicas_every", 2}}, json::object(), group);
    const std::unique_ptr<TrainHook> hook = MakeReplicaCheckHook(prepared.recipe());
    hook->AtStart(prepared.run());
    hook->AfterStep(prepared.run(), 2);
    if (group.rank() == 1) {
      const at::NoGradGuard no_grad;
      prepared.run().training_model.module().parameters().back().add_(1e-6);
    }
    hook->AfterStep(prepared.run(), 3);
    hook->AfterStep(prepared.run(), 4);
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(TextOf(error), AllOf(HasSubstr("the weights differ"), HasSubstr("after step 4"),
                                     HasSubstr("were equal after step 2")));
  }
}

TEST(ReplicaCheckHookTest, RefusesZeroStage3) {
  ExpectRefused(
      [] {
        MakeReplicaCheckHook(
            ReadRecipe({{"check_replicas_every", 2}}, {{"zero_optimization", {{"stage", 3}}}}, 1));
      },
      ExitCode::kBadInput, AllOf(HasSubstr("run.check_replicas_every"), HasSubstr("stage 2")));
  EXPECT_EQ(MakeReplicaCheckHook(ReadRecipe(json::object(), json::object(), 1)), nullptr);
}

TEST(CheckpointHookTest, SavesEverySaveEverySteps) {
  const TempDir dir;
  Prepared prepared(json{{"checkpoint_dir", dir / "saves"}, {"save_every", 2}, {"steps", 5}});
  prepared.Train(MakeCheckpointHook(prepared.recipe()));
  prepared.run().FinishSaving();
  EXPECT_TRUE(std::filesystem::exists(dir / "saves/step_000002"));
  EXPECT_TRUE(std::filesystem::exists(dir / "saves/step_000004"));
  EXPECT_FALSE(std::filesystem::exists(dir / "saves/step_000005"));
  EXPECT_EQ(MakeCheckpointHook(ReadRecipe(json::object(), json::object(), 1)), nullptr);
}

// A hook that sets the model's weights such that every loss from a step on is NaN.
class Poison : public TrainHook {
 public:
  explicit Poison(int64_t step) : step_(step) {}
  void BeforeStep(TrainRun& run, int64_t step) override {
    if (step != step_) return;
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : run.training_model.module().parameters()) parameter.fill_(NAN);
  }

 private:
  const int64_t step_;
};

TEST(CheckpointHookTest, DivergedRunKeepsGoodCheckpoints) {
  const TempDir dir;
  WorkerEnv env;
  env.master_addr = "127.0.0.1";
  ProcessGroup group(env);  // separate group, because the run leaves its group
  Prepared prepared(json{{"checkpoint_dir", dir / "saves"}, {"save_every", 1}, {"steps", 40}},
                    {{"bf16", {{"enabled", true}}}}, group);
  TrainHooks hooks;
  hooks.push_back(std::make_unique<Poison>(4));
  hooks.push_back(MakeProgressHook());
  hooks.push_back(MakeCheckpointHook(prepared.recipe()));
  testing::internal::CaptureStdout();
  ExpectRefused(
      [&] { TrainSteps(prepared.run(), std::move(hooks)); }, ExitCode::kBadInput,
      AllOf(HasSubstr("training has diverged: the loss of rank 0 is nan at step 4"),
            HasSubstr("5 steps in a row"), HasSubstr("the newest checkpoint is that of step 3"),
            HasSubstr("try a lower learning rate")));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("step 4 was skipped"),
                    HasSubstr("no checkpoint after step 4: the last 1 step made no update")));
  std::set<std::string> saved;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "saves"))
    if (entry.is_directory()) saved.insert(entry.path().filename());
  EXPECT_THAT(saved, ElementsAre("step_000002", "step_000003"));
}

TEST(CheckpointHookTest, DoesNotSaveNonFiniteWeights) {
  const TempDir dir;
  Prepared prepared(json{{"checkpoint_dir", dir / "saves"}, {"save_every", 2}});
  TrainRun& run = prepared.run();
  run.checkpointer->Load(run.training_model.core());
  prepared.Train(MakeCheckpointHook(prepared.recipe()));
  {
    const at::NoGradGuard no_grad;
    run.training_model.module().parameters().back()[0] = INFINITY;
  }
  ExpectRefused([&] { run.checkpointer->Save(run.training_model.core(), {.step = 5}, 20); },
                ExitCode::kBadInput,
                AllOf(HasSubstr("fc2.bias is not finite after step 5"),
                      HasSubstr("the newest checkpoint is that of step 4")));
  EXPECT_FALSE(std::filesystem::exists(dir / "saves/step_000005"));
}

TEST(EvaluationHookTest, EvaluatesBetweenSteps) {
  Prepared prepared(json{{"eval_every", 2}});
  const std::string printed = prepared.Train(MakeEvaluationHook(prepared.recipe()));
  EXPECT_THAT(printed, AllOf(HasSubstr("step 2: test accuracy "), HasSubstr("of 16)")));
  // The evaluation at the end is printed by the run itself.
  EXPECT_THAT(printed, Not(HasSubstr("step 4: test")));
  EXPECT_TRUE(prepared.run().training_model.module().is_training());
  EXPECT_EQ(prepared.last(), 4);
}

}  // namespace
}  // namespace dslaunch::hooks_test
