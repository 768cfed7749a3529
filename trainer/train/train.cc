#include "trainer/train/train.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "dslaunch/process_group.h"
#include "trainer/base/format.h"
#include "trainer/base/rank_files.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/comm/numbers.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/export.h"
#include "trainer/train/prepare.h"
#include "trainer/train/train_hook.h"
#include "trainer/train/train_log.h"
#include "trainer/train/train_loop.h"
#include "trainer/train/train_run.h"

namespace dslaunch {
namespace {

// Of each category the largest: a pipeline's stages differ.
MemoryPlan LargestPlan(const MemoryPlan& own, const ProcessGroup& group) {
  constexpr std::array kCategories = {&MemoryPlan::parameters,     &MemoryPlan::gradients,
                                      &MemoryPlan::buckets,        &MemoryPlan::optimizer,
                                      &MemoryPlan::master_weights, &MemoryPlan::buffers};
  std::vector<double> numbers;
  for (const auto category : kCategories) numbers.push_back(static_cast<double>(own.*category));
  MemoryPlan largest;
  for (const std::vector<double>& rank : GatherNumbers(group, numbers)) {
    for (size_t i = 0; i < rank.size(); ++i) {
      int64_t& bytes = largest.*kCategories[i];
      bytes = std::max(bytes, static_cast<int64_t>(rank[i]));
    }
  }
  return largest;
}

class Trainer {
 public:
  // Whatever can be wrong with the input shows here, before this rank makes others wait.
  Trainer(const Recipe& recipe, const WorkerEnv& env);

  void Run(const WorkerEnv& env, const RankDevice& device);

 private:
  static std::optional<Checkpointer> MakeCheckpointer(const Recipe& recipe, const WorkerEnv& env,
                                                      int64_t train_samples);
  static std::optional<Clock::time_point> Deadline(const Recipe& recipe);
  Progress::Options ProgressOptions(const WorkerEnv& env) const;

  std::string WhoTrains(const TrainingModel& training_model) const;
  void Announce(const TrainRun& run) const;
  void LeaveIfStopped(TrainRun& run, int64_t step) const;
  void Export(const TrainRun& run) const;

  const Recipe& recipe_;
  const TrainLog log_;
  DataSplits data_;
  std::optional<Checkpointer> checkpointer_;
  Schedule schedule_;
  Progress progress_;
  std::optional<Clock::time_point> deadline_;
  TrainHooks hooks_;
};

std::optional<Checkpointer> Trainer::MakeCheckpointer(const Recipe& recipe, const WorkerEnv& env,
                                                      int64_t train_samples) {
  if (recipe.run.checkpoint_dir.empty()) return std::nullopt;
  return std::make_optional<Checkpointer>(recipe, env, train_samples);
}

std::optional<Clock::time_point> Trainer::Deadline(const Recipe& recipe) {
  if (!recipe.run.time_limit_s) return std::nullopt;
  if (recipe.run.checkpoint_dir.empty()) {
    throw TrainError(
        ExitCode::kBadInput,
        "run.time_limit_s needs run.checkpoint_dir (--checkpoint_dir), or the training "
        "until then would be lost");
  }
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(*recipe.run.time_limit_s));
}

Trainer::Trainer(const Recipe& recipe, const WorkerEnv& env)
    : recipe_(recipe),
      log_(env.rank, recipe.engine.log_level),
      data_(OpenData(recipe.data, recipe.model)),
      checkpointer_(MakeCheckpointer(recipe, env, data_.train->size())),
      schedule_(MakeSchedule(recipe, data_.train->size(),
                             env.world_size / recipe.engine.pipeline.stages,
                             checkpointer_ ? checkpointer_->start() : Position{})),
      progress_(ProgressOptions(env)),
      deadline_(Deadline(recipe)),
      hooks_(MakeTrainHooks(recipe, env)) {}

Progress::Options Trainer::ProgressOptions(const WorkerEnv& env) const {
  return {.rank = env.rank,
          .log = log_,
          .status_fd = env.status_fd,
          .metrics_jsonl = recipe_.run.metrics_jsonl,
          .rank_dir = RankDir(),
          .attempt = static_cast<int64_t>(env.attempt),
          .tokens_per_sample = data_.train->tokens_per_sample(),
          .samples_before = checkpointer_ ? checkpointer_->samples_seen() : 0,
          .schedule = schedule_};
}

void Trainer::Run(const WorkerEnv& env, const RankDevice& device) {
  Checkpointer* const checkpointer = checkpointer_ ? &*checkpointer_ : nullptr;
  ProcessGroup group(env, device);
  if (checkpointer != nullptr) checkpointer->Agree(group);
  const std::unique_ptr<TrainingModel> training_model =
      PrepareTrainingModel(recipe_, OneSample(*data_.train), group, checkpointer);
  TrainRun run = {
      .recipe = recipe_,
      .data = data_,
      .schedule = schedule_,
      .log = log_,
      .group = group,
      .training_model = *training_model,
      .progress = progress_,
      .checkpointer = checkpointer,
      .deadline = deadline_,
      .plan = LargestPlan(PlanMemory(SizesOf(training_model->module()), recipe_.engine), group)};
  if (checkpointer != nullptr) CatchSigterm();
  progress_.Ready();
  Announce(run);

  const int64_t last = TrainSteps(run, std::move(hooks_));
  run.Save(last);
  LeaveIfStopped(run, last);
  run.EvaluateOnTestData("test");
  LeaveIfStopped(run, last);
  run.WaitForSave();
  Export(run);

  group.Barrier();  // which waits longer for rank 0 than Finish would
  group.Finish();
}

std::string Trainer::WhoTrains(const TrainingModel& training_model) const {
  const int replicas = training_model.replicas().world_size();
  const int64_t stages = recipe_.engine.pipeline.stages;
  if (stages == 1) return Format("%d ranks", replicas);
  return Format("%d %s of %lld stages (%s)", replicas, replicas == 1 ? "replica" : "replicas",
                static_cast<long long>(stages), ScheduleTypeName(recipe_.engine.pipeline.schedule));
}

void Trainer::Announce(const TrainRun& run) const {
  if (recipe_.engine.dump_state) log_.Result(DescribeEngineConfig(recipe_.engine));
  if (recipe_.engine.memory_breakdown) log_.Result(PlanText(run.plan));
  if (!log_.prints_info()) return;
  const BatchConfig& batch = recipe_.engine.batch;
  const std::string& scheduler = recipe_.engine.scheduler.name;
  log_.Info(Format(
      "training %s (%lld parameters) on %s: %lld samples, %lld steps of %lld = %lld x %lld x %s, "
      "%s "
      "lr %g%s",
      ModelTypeName(recipe_.model), static_cast<long long>(run.training_model.total_parameters()),
      recipe_.data.path.c_str(), static_cast<long long>(data_.train->size()),
      static_cast<long long>(schedule_.total_steps), static_cast<long long>(batch.train_batch_size),
      static_cast<long long>(batch.micro_batch_size),
      static_cast<long long>(batch.accumulation_steps), WhoTrains(run.training_model).c_str(),
      recipe_.engine.optimizer->name.c_str(), recipe_.engine.optimizer->lr,
      scheduler.empty() ? "" : (", " + scheduler).c_str()));
  if (const Accelerator* accelerator = run.group.rank_device().accelerator) {
    log_.Info("rank 0 computes on " + accelerator->Name(run.group.device().index()));
  }
  if (checkpointer_) log_.Info(checkpointer_->reason());
  if (schedule_.first_step >= schedule_.total_steps) {
    log_.Info(Format("nothing to train: %lld of %lld steps are done",
                     static_cast<long long>(schedule_.first_step),
                     static_cast<long long>(schedule_.total_steps)));
  }
}

void Trainer::LeaveIfStopped(TrainRun& run, int64_t step) const {
  if (!run.stop) return;
  run.WaitForSave();
  run.group.Finish();
  throw TrainError(
      ExitCode::kPreempted,
      Format("stopped after step %lld of %lld: %s; the checkpoint is saved in %s; start again to "
             "continue",
             static_cast<long long>(step), static_cast<long long>(schedule_.total_steps),
             StopReason(run.stop).c_str(), recipe_.run.checkpoint_dir.c_str()));
}

void Trainer::Export(const TrainRun& run) const {
  const std::string& folder = recipe_.run.export_hf;
  if (folder.empty()) return;
  const DeferredModel whole = DeferModel(recipe_, data_.train->input_shape());
  ExportWeights(run.training_model, *whole.model, run.group, recipe_.model, folder);
  log_.Result("the weights in Hugging Face's format are in " + folder);
}

}  // namespace

void Train(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  Trainer(recipe, env).Run(env, device);
}

}  // namespace dslaunch
