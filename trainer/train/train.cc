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
#include "trainer/checkpoint/memory_copies.h"
#include "trainer/comm/numbers.h"
#include "trainer/device/device_traits.h"
#include "trainer/pipeline/schedule_simulation.h"
#include "trainer/resume/adapters.h"
#include "trainer/resume/run_start.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/export.h"
#include "trainer/train/pass_memory.h"
#include "trainer/train/prepare.h"
#include "trainer/train/train_hook.h"
#include "trainer/train/train_log.h"
#include "trainer/train/train_loop.h"
#include "trainer/train/train_run.h"

namespace dslaunch {
namespace {

// Returns whether the command, if it is repeated, starts again from the checkpoint that --resume
// names.
bool StartsFromTag(const RunConfig& run) {
  return run.resume != "auto" && run.resume != "none" && !run.load_module_only;
}

// The checkpoints of a run: its own on the disk, its copies in memory, and the checkpoint of
// run.resume_from if the run starts from that.
class RunCheckpoints {
 public:
  // Finds the checkpoints. Throws the errors of Checkpointer's and RunStart's constructors.
  // Collective.
  RunCheckpoints(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group,
                 int64_t train_samples) {
    if (recipe.run.memory_checkpoint > 0) memory_.emplace(recipe, env);
    if (!recipe.run.checkpoint_dir.empty()) {
      own_.emplace(recipe, env, group, train_samples, memory());
    } else if (memory_) {
      memory_->Find(group, /*after_step=*/0);
    }
    if (!recipe.run.resume_from.empty() && !(own_ && own_->found()) && copy() == nullptr) {
      other_.emplace(recipe, group, train_samples);
    }
  }

  Checkpointer* own() { return own_ ? &*own_ : nullptr; }
  MemoryCopies* memory() { return memory_ ? &*memory_ : nullptr; }
  // Returns the copy in memory from which the run starts; null if it starts from something else.
  const Checkpoint* copy() const { return memory_ ? memory_->found() : nullptr; }
  Position start() const {
    return copy() != nullptr ? copy()->manifest.position
           : other_          ? other_->position()
           : own_            ? own_->start()
                             : Position{};
  }
  int64_t samples_seen() const {
    return copy() != nullptr ? copy()->manifest.samples_seen
           : other_          ? other_->samples_seen()
           : own_            ? own_->samples_seen()
                             : 0;
  }
  // Returns one line about the start of the run; "" if the run has no checkpoints.
  std::string reason() const {
    if (!own_ && copy() != nullptr) return memory_->reason();
    const std::string own = own_ ? own_->reason() : "";
    if (!other_) return own;
    return other_->reason() + (own.empty() ? "" : "; " + own);
  }
  // Gives the checkpoints the record of the run's adapters, if it has any. Throws on every rank,
  // after it has left the group, if the checkpoint to load has other adapters. Collective.
  void UseAdapters(const Recipe& recipe, ProcessGroup& group) {
    if (!own_ && !other_) return;
    try {
      const std::string adapters = DescribeAdapters(recipe, group);
      if (own_ && own_->found()) {
        CheckAdapters(*own_->loaded(), adapters, recipe.run.checkpoint_dir);
      }
      if (other_) CheckAdapters(other_->manifest(), adapters, recipe.run.resume_from);
      if (own_) own_->DescribeAdapters(adapters);
    } catch (const TrainError&) {
      group.Finish();
      throw;
    }
  }
  void Load(EngineCore& engine) {
    if (other_) other_->Load(engine);
    if (own_) {
      own_->Load(engine);
    } else if (copy() != nullptr) {
      memory_->Restore(engine);
    }
  }

 private:
  std::optional<MemoryCopies> memory_;
  std::optional<Checkpointer> own_;
  std::optional<RunStart> other_;
};

// Reports the step after which this attempt continues, unless copies in memory have reported it.
void ReportRestore(Progress& progress, RunCheckpoints& checkpoints, int64_t first_step) {
  if (checkpoints.copy() != nullptr) return;
  const MemoryCopies* const memory = checkpoints.memory();
  progress.RestoredFromDisk(first_step, memory == nullptr ? std::nullopt : memory->reached_step());
}

// Returns the maximum over the ranks of each category, because the stages of a pipeline differ.
// Collective.
MemoryPlan LargestPlan(const MemoryPlan& own, const ProcessGroup& group) {
  constexpr std::array kCategories = {&MemoryPlan::parameters,     &MemoryPlan::gathered,
                                      &MemoryPlan::gradients,      &MemoryPlan::buckets,
                                      &MemoryPlan::optimizer,      &MemoryPlan::master_weights,
                                      &MemoryPlan::buffers,        &MemoryPlan::passes,
                                      &MemoryPlan::update,         &MemoryPlan::passes_with_buckets,
                                      &MemoryPlan::in_main_memory, &MemoryPlan::in_files};
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
  // Reads and checks the input. Most errors of the input are thrown by this constructor, before
  // other ranks wait for this rank.
  Trainer(const Recipe& recipe, const WorkerEnv& env);

  void Run(const WorkerEnv& env, const RankDevice& device);

 private:
  static std::optional<Clock::time_point> Deadline(const Recipe& recipe);
  Schedule ScheduleFrom(const Position& start, const WorkerEnv& env) const;
  Progress::Options ProgressOptions(const WorkerEnv& env) const;

  MemoryPlan OwnPlan(const TrainingModel& training_model) const;
  std::string WhoTrains(const TrainingModel& training_model) const;
  void Announce(const TrainRun& run) const;
  int64_t TrainAll(TrainRun& run);
  void LeaveIfStopped(TrainRun& run, int64_t step) const;
  void Export(const TrainRun& run) const;

  Recipe recipe_;
  const TrainLog log_;
  DataSplits data_;
  UserMetrics metrics_;
  Progress progress_;
  std::optional<Clock::time_point> deadline_;
  std::unique_ptr<Monitors> monitors_;
  TrainHooks hooks_;
};

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
      data_(OpenData(recipe.data, recipe.model.needs())),
      metrics_(recipe.run.metrics),
      progress_(ProgressOptions(env)),
      deadline_(Deadline(recipe)),
      monitors_(MakeMonitors(recipe.engine.monitors, env.rank)),
      hooks_(MakeTrainHooks(recipe, env)) {
  if (!data_.notice.empty()) log_.Warning(data_.notice);
  // Too few samples are an error at whichever step the run starts, so the schedule is checked from
  // step 0.
  FitToRun(recipe_.engine.scheduler, ScheduleFrom({}, env).total_steps);
}

Schedule Trainer::ScheduleFrom(const Position& start, const WorkerEnv& env) const {
  return MakeSchedule(recipe_, data_.train->size(), recipe_.engine.MeshOf(env.world_size).data,
                      start);
}

Progress::Options Trainer::ProgressOptions(const WorkerEnv& env) const {
  return {.rank = env.rank,
          .log = log_,
          .status_fd = env.status_fd,
          .metrics_jsonl = recipe_.run.metrics_jsonl,
          .rank_dir = RankDir(),
          .attempt = static_cast<int64_t>(env.attempt),
          .tokens_per_sample = data_.train->tokens_per_sample(),
          .loss_scale_adapts = recipe_.engine.precision.loss_scaler &&
                               recipe_.engine.precision.loss_scaler->dynamic};
}

void Trainer::Run(const WorkerEnv& env, const RankDevice& device) {
  ProcessGroup group(env, device, GroupOptions(recipe_.run));
  CheckSameData(data_.train.get(), data_.test.get(), group);
  RunCheckpoints checkpoints(recipe_, env, group, data_.train->size());
  checkpoints.UseAdapters(recipe_, group);
  Checkpointer* const checkpointer = checkpoints.own();
  const Schedule schedule = ScheduleFrom(checkpoints.start(), env);
  // Created before the model, so that the model's memory is measured too.
  std::optional<ActivationMeter> tensors;
  if (recipe_.engine.memory_breakdown) tensors.emplace();
  const std::unique_ptr<TrainingModel> training_model =
      PrepareTrainingModel(recipe_, OneSample(*data_.train), group,
                           [&](EngineCore& engine) { checkpoints.Load(engine); });
  StaleTraining* const stale = training_model->core().stale_training();
  const bool only_trains = stale != nullptr && !stale->is_server();
  const MemoryPlan plan = LargestPlan(OwnPlan(*training_model), group);
  if (stale != nullptr && checkpointer != nullptr) checkpointer->SaveWith(stale->group());
  TrainRun run = {.recipe = recipe_,
                  .data = data_,
                  .metrics = metrics_,
                  .schedule = schedule,
                  .log = log_,
                  .group = stale == nullptr ? group : stale->group(),
                  .training_model = *training_model,
                  .progress = progress_,
                  .checkpointer = only_trains ? nullptr : checkpointer,
                  .memory = checkpoints.memory(),
                  .start_text = checkpoints.reason(),
                  .samples_seen = checkpoints.samples_seen(),
                  .deadline = deadline_,
                  .plan = plan,
                  .stale = stale,
                  .tensors = tensors ? &*tensors : nullptr,
                  .monitors = monitors_.get()};
  if (checkpointer != nullptr) CatchStopSignals();
  progress_.Ready(/*loss_tolerated=*/only_trains);
  if (env.attempt > 1 && env.rank == 0 && schedule.first_step > 0)
    ReportRestore(progress_, checkpoints, schedule.first_step);
  Announce(run);

  const int64_t last = TrainAll(run);
  if (only_trains) {
    stale->Leave();
    return group.Finish();
  }
  if (stale != nullptr && run.stop) stale->Pause();
  if (stale != nullptr && !run.stop) stale->Meet(last);
  run.Save(last);
  LeaveIfStopped(run, last);
  run.EvaluateOnTestData(last, "test");
  LeaveIfStopped(run, last);
  run.FinishSaving();
  Export(run);

  const std::vector<int> lost = stale == nullptr ? std::vector<int>() : stale->Leave();
  for (const int rank : lost) progress_.Lost(rank);
  // Finish waits for rank 0 for a shorter time than this barrier, so the ranks synchronize first.
  run.group.Barrier();
  group.Finish(lost);
}

MemoryPlan Trainer::OwnPlan(const TrainingModel& training_model) const {
  PassMemory passes;
  if (recipe_.engine.memory_breakdown && !recipe_.engine.pipeline.wanted()) {
    const int64_t first = 0;
    try {
      passes = MeasurePass(recipe_, data_.train->Fetch({&first, 1}));
    } catch (const TrainError& error) {
      // kBadInput means that the passes cannot be measured in advance, so the plan omits
      // activations.
      if (error.code() != ExitCode::kBadInput) throw;
    }
  }
  return PlanMemory(SizesOf(training_model.module()), recipe_.engine, passes);
}

std::string Trainer::WhoTrains(const TrainingModel& training_model) const {
  const Mesh& mesh = training_model.core().ranks().mesh();
  if (!mesh.cuts_model()) return Format("%d ranks", mesh.data);
  std::string who = Format("%d %s of ", mesh.data, mesh.data == 1 ? "replica" : "replicas");
  if (mesh.pipeline > 1) {
    who +=
        Format("%d stages (%s)", mesh.pipeline, ScheduleTypeName(recipe_.engine.pipeline.schedule));
  }
  if (mesh.tensor > 1) who += Format(mesh.pipeline > 1 ? " x %d parts" : "%d parts", mesh.tensor);
  return who;
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
      recipe_.model.type(), static_cast<long long>(run.training_model.total_parameters()),
      DataName(recipe_.data).c_str(), static_cast<long long>(data_.train->size()),
      static_cast<long long>(run.schedule.total_steps),
      static_cast<long long>(batch.train_batch_size),
      static_cast<long long>(batch.micro_batch_size),
      static_cast<long long>(batch.accumulation_steps), WhoTrains(run.training_model).c_str(),
      recipe_.engine.optimizer->name.c_str(), recipe_.engine.optimizer->lr,
      scheduler.empty() ? "" : (", " + scheduler).c_str()));
  if (recipe_.data.type == DataConfig::Type::kImageFolder) {
    log_.Info(
        Format("images are %lld x %lld pixels, cut from the centre of what is scaled to that "
               "(data.image_size)",
               static_cast<long long>(recipe_.data.image_size),
               static_cast<long long>(recipe_.data.image_size)));
  }
  if (run.schedule.left_out > 0) {
    log_.Info(
        Format("the last %lld of the run's micro-batches do not make a step of %lld and are "
               "left out; --steps gives another length",
               static_cast<long long>(run.schedule.left_out),
               static_cast<long long>(batch.accumulation_steps)));
  }
  const std::string warmup = WarmupRemark(recipe_.engine.scheduler, recipe_.engine.optimizer->lr,
                                          run.schedule.total_steps);
  if (!warmup.empty()) log_.Info(warmup);
  const std::string converted =
      PrecisionRemark(recipe_.engine.precision, TraitsOf(run.group.rank_device()));
  if (!converted.empty()) log_.Info(converted);
  const std::string idle = IdleRemark(recipe_.engine.pipeline, batch.accumulation_steps);
  if (!idle.empty()) log_.Info(idle);
  if (const Accelerator* accelerator = run.group.rank_device().accelerator)
    log_.Info("rank 0 computes on " + accelerator->Name(run.group.device().index()));
  if (!run.start_text.empty()) log_.Info(run.start_text);
  if (run.schedule.first_step >= run.schedule.total_steps) {
    log_.Info(Format("nothing to train: %lld of %lld steps are done",
                     static_cast<long long>(run.schedule.first_step),
                     static_cast<long long>(run.schedule.total_steps)));
  }
}

int64_t Trainer::TrainAll(TrainRun& run) {
  try {
    return TrainSteps(run, std::move(hooks_));
  } catch (const std::exception&) {
    if (run.stale != nullptr) run.stale->Fail();
    throw;
  }
}

void Trainer::LeaveIfStopped(TrainRun& run, int64_t step) const {
  if (!run.stop) return;
  run.FinishSaving();
  if (run.stale != nullptr) run.stale->Leave();
  run.group.Finish();
  throw TrainError(
      ExitCode::kPreempted,
      Format("stopped after step %lld of %lld: %s; the checkpoint is saved in %s; start again to "
             "continue%s",
             static_cast<long long>(step), static_cast<long long>(run.schedule.total_steps),
             StopReason(run.stop).c_str(), recipe_.run.checkpoint_dir.c_str(),
             StartsFromTag(recipe_.run) ? ", with --resume auto" : ""));
}

void Trainer::Export(const TrainRun& run) const {
  const std::string& folder = recipe_.run.export_hf;
  if (folder.empty()) return;
  const DeferredModel whole = DeferModel(recipe_, data_.train->input_shape());
  ExportWeights(run.training_model, *whole.model, run.group, recipe_, folder);
  log_.Result((recipe_.lora ? "the adapters in PEFT's format are in "
                            : "the weights in Hugging Face's format are in ") +
              folder);
}

}  // namespace

void Train(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  Trainer(recipe, env).Run(env, device);
}

}  // namespace dslaunch
