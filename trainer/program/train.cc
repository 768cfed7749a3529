#include "trainer/program/train.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "dslaunch/process_group.h"
#include "proto/contract/run_files.h"
#include "trainer/base/rank_files.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/comm/numbers.h"
#include "trainer/device/device_memory.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/engine/memory_bytes.h"
#include "trainer/profile/comms_logger.h"
#include "trainer/profile/flop_formula.h"
#include "trainer/profile/forward_meter.h"
#include "trainer/profile/monitors.h"
#include "trainer/profile/peak_flops.h"
#include "trainer/profile/step_profiler.h"
#include "trainer/program/evaluate.h"
#include "trainer/program/export.h"
#include "trainer/program/flops_report.h"
#include "trainer/program/prepare.h"
#include "trainer/program/progress.h"
#include "trainer/program/replicas.h"
#include "trainer/program/report.h"
#include "trainer/program/run_file.h"
#include "trainer/program/schedule.h"
#include "trainer/program/step.h"
#include "trainer/program/stop.h"
#include "trainer/program/train_batches.h"
#include "trainer/program/trainee.h"

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
  struct Stop {
    StopWish wish = StopWish::kNone;
    int rank = 0;
  };

  static std::optional<Checkpointer> MakeCheckpointer(const Recipe& recipe, const WorkerEnv& env,
                                                      int64_t train_samples);
  Progress::Options ProgressOptions(const WorkerEnv& env) const;

  bool Rank0() const { return group_->rank() == 0; }
  bool TellsInfo() const { return recipe_.engine.log_level <= EngineLogLevel::kInfo; }
  StopWish Wish() const {
    return checkpointer_ && checkpointer_->failed() ? StopWish::kSaveFailed
                                                    : CurrentStopWish(deadline_);
  }
  std::string WhoTrains() const;
  void Announce() const;
  // Trains until the last step, or until all ranks know that one wishes to stop. The step it ended
  // with.
  int64_t TrainSteps();
  StepOutcome OneStep(BatchLoader& batches, int64_t step);
  double PeakFlopsOfAllRanks() const;
  void TellBreakdown(int64_t step);
  void WriteMonitors(double loss);
  void TellWork(double flops);
  void ReadAllSteps();
  void Exchange(int64_t step);
  void CheckReplicas(int64_t step);
  void Save(int64_t step);
  void WaitForSave();
  void EvaluateAfter(const std::string& prefix);
  void LeaveEarly(int64_t step);
  void ReportEnd(const BatchLoader& batches) const;
  std::string PeakMemoryLine() const;
  MemoryBytes Memory() const;

  const Recipe& recipe_;
  DataSplits data_;
  std::optional<Checkpointer> checkpointer_;
  Schedule schedule_;
  Progress progress_;
  // What wall_clock_breakdown has not told yet.
  struct Untold {
    PhaseTimes times;
    double compute_s = 0;
    double seconds = 0;
    int64_t steps = 0;
  };

  std::optional<Monitors> monitors_;  // rank 0's
  Untold untold_;
  std::optional<ActivationMeter> meter_;  // of a run that is profiled, from before its model on
  std::optional<StepProfiler> profiler_;
  std::optional<Clock::time_point> deadline_;
  std::optional<ProcessGroup> group_;
  std::unique_ptr<Trainee> trainee_;
  MemoryPlan plan_;
  std::vector<StepOutcome> unread_;  // of the last steps
  double own_flops_ = 0;             // of this run's first step
  bool work_told_ = false;           // all ranks know each other's
  int64_t interval_ = 0;             // steps between the last two exchanges
  int64_t next_exchange_ = 0;        // the step
  int64_t equal_step_ = 0;           // the last one after which the ranks' weights were compared
  Stop stop_;
};

std::optional<Checkpointer> Trainer::MakeCheckpointer(const Recipe& recipe, const WorkerEnv& env,
                                                      int64_t train_samples) {
  if (recipe.run.checkpoint_dir.empty()) return std::nullopt;
  return std::make_optional<Checkpointer>(recipe, env, train_samples);
}

Trainer::Trainer(const Recipe& recipe, const WorkerEnv& env)
    : recipe_(recipe),
      data_(OpenData(recipe.data, recipe.model)),
      checkpointer_(MakeCheckpointer(recipe, env, data_.train->size())),
      schedule_(MakeSchedule(recipe, data_.train->size(),
                             env.world_size / recipe.engine.pipeline.stages,
                             checkpointer_ ? checkpointer_->start() : Position{})),
      progress_(ProgressOptions(env)) {
  if (recipe.run.time_limit_s) {
    if (!checkpointer_) {
      throw TrainError(ExitCode::kBadInput,
                       "run.time_limit_s needs run.checkpoint_dir (--checkpoint_dir), or what was "
                       "trained until then would be lost");
    }
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(*recipe.run.time_limit_s));
  }
  if (recipe.run.check_replicas_every && recipe.engine.zero.stage == 3) {
    throw TrainError(ExitCode::kBadInput,
                     "run.check_replicas_every compares the ranks' copies of the weights, of which "
                     "ZeRO stage 3 has none; leave it out, or take stage 2");
  }
  if (recipe.run.check_replicas_every && recipe.engine.pipeline.stages > 1) {
    throw TrainError(ExitCode::kBadInput,
                     "run.check_replicas_every compares the weights of all ranks, which a "
                     "pipeline's stages do not share; leave it out");
  }
  if (env.rank == 0) {
    const MonitorsConfig& monitors = recipe.engine.monitors;
    monitors_.emplace(monitors);
    if (monitors.flops_profiler) PrepareFlopsReport(*monitors.flops_profiler);
  }
  if (recipe.run.profile || !recipe.run.trace.empty()) {
    profiler_.emplace(StepProfiler::Options{
        .steps = recipe.run.profile.value_or(ProfileConfig()),
        .table = recipe.run.profile.has_value(),
        .trace_folder = recipe.run.trace,
        .rank_dir = RankDir(),
        .rank = env.rank,
        .world_size = env.world_size,
        .backend =
            [this] {
              return group_->c10d_group()->getBackend(group_->device().type())->getBackendName();
            },
        .add_memory =
            [this](ProfileResult& result) {
              const MemoryUse& use = trainee_->core().memory_at_backward();
              result.memory = ToBytes(use, PeakRssBytes());
              result.allocated = use.allocated;
            }});
    meter_.emplace();
  }
}

Progress::Options Trainer::ProgressOptions(const WorkerEnv& env) const {
  return {.rank = env.rank,
          .tells_info = TellsInfo(),
          .tells_warnings = recipe_.engine.log_level <= EngineLogLevel::kWarning,
          .status_fd = env.status_fd,
          .metrics_jsonl = recipe_.run.metrics_jsonl,
          .rank_dir = RankDir(),
          .attempt = static_cast<int64_t>(env.epoch),
          .tokens_per_sample = data_.train->tokens_per_sample(),
          .samples_before = checkpointer_ ? checkpointer_->samples_seen() : 0,
          .schedule = schedule_};
}

void Trainer::Run(const WorkerEnv& env, const RankDevice& device) {
  group_.emplace(env, device);
  if (checkpointer_) checkpointer_->Agree(*group_);
  trainee_ = PrepareTrainee(recipe_, OneSample(*data_.train), *group_,
                            checkpointer_ ? &*checkpointer_ : nullptr);
  plan_ = LargestPlan(PlanMemory(SizesOf(trainee_->module()), recipe_.engine), *group_);
  if (checkpointer_) CatchSigterm();
  progress_.Ready();
  Announce();
  const int64_t last = TrainSteps();
  Save(last);
  if (stop_.wish != StopWish::kNone) LeaveEarly(last);
  EvaluateAfter("test");
  if (stop_.wish != StopWish::kNone) LeaveEarly(last);
  WaitForSave();
  if (!recipe_.run.export_hf.empty()) {
    const DeferredModel whole = DeferModel(recipe_, data_.train->input_shape());
    ExportWeights(*trainee_, *whole.model, *group_, recipe_.model, recipe_.run.export_hf);
    if (Rank0()) {
      PrintLine("the weights in Hugging Face's layout are in " + recipe_.run.export_hf);
    }
  }
  group_->Barrier();  // which waits longer for rank 0 than Finish would
  group_->Finish();
}

std::string Trainer::WhoTrains() const {
  const int replicas = trainee_->replicas().world_size();
  const int64_t stages = recipe_.engine.pipeline.stages;
  if (stages == 1) return Format("%d ranks", replicas);
  return Format("%d %s of %lld stages (%s)", replicas, replicas == 1 ? "replica" : "replicas",
                static_cast<long long>(stages), ScheduleTypeName(recipe_.engine.pipeline.schedule));
}

void Trainer::Announce() const {
  if (!Rank0()) return;
  if (recipe_.engine.dump_state) PrintLine(DescribeEngineConfig(recipe_.engine));
  if (recipe_.engine.memory_breakdown) PrintLine(PlanText(plan_));
  if (!TellsInfo()) return;
  const BatchConfig& batch = recipe_.engine.batch;
  const std::string& scheduler = recipe_.engine.scheduler.name;
  PrintLine(Format(
      "training %s (%lld parameters) on %s: %lld samples, %lld steps of %lld = %lld x %lld x %s, "
      "%s "
      "lr %g%s",
      ModelTypeName(recipe_.model), static_cast<long long>(trainee_->total_parameters()),
      recipe_.data.path.c_str(), static_cast<long long>(data_.train->size()),
      static_cast<long long>(schedule_.total_steps), static_cast<long long>(batch.train_batch_size),
      static_cast<long long>(batch.micro_batch_size),
      static_cast<long long>(batch.accumulation_steps), WhoTrains().c_str(),
      recipe_.engine.optimizer->name.c_str(), recipe_.engine.optimizer->lr,
      scheduler.empty() ? "" : (", " + scheduler).c_str()));
  if (const Accelerator* accelerator = group_->rank_device().accelerator) {
    PrintLine("rank 0 computes on " + accelerator->Name(group_->device().index()));
  }
  if (checkpointer_) PrintLine(checkpointer_->reason());
  if (schedule_.first_step >= schedule_.total_steps) {
    PrintLine(Format("nothing left to train: %lld of %lld steps are done",
                     static_cast<long long>(schedule_.first_step),
                     static_cast<long long>(schedule_.total_steps)));
  }
}

int64_t Trainer::TrainSteps() {
  BatchLoader batches = TrainBatches(recipe_, *data_.train, *trainee_, schedule_);
  trainee_->SetTrain(true);
  std::optional<CommsLogger> comms;
  if (const auto& wanted = recipe_.engine.monitors.comms_logger) {
    comms.emplace(*wanted, group_->rank(), group_->world_size());
  }
  progress_.Start();
  equal_step_ = schedule_.first_step;
  int64_t step = schedule_.first_step;
  while (step < schedule_.total_steps && stop_.wish == StopWish::kNone) {
    const int64_t index = step++ - schedule_.first_step;
    if (profiler_) profiler_->BeforeStep(index);
    unread_.push_back(OneStep(batches, step));
    const bool exchanges = schedule_.ExchangesAfter(step) || step >= next_exchange_;
    // A GPU that somebody waits for has nothing to do next.
    if (exchanges || group_->device().is_cpu()) ReadAllSteps();
    if (profiler_) profiler_->AfterStep(index);
    if (exchanges) Exchange(step);
    TellBreakdown(step);
    if (unread_.empty()) progress_.WriteStatus();
    const std::optional<int64_t> check = recipe_.run.check_replicas_every;
    if (check && step % *check == 0) CheckReplicas(step);
    if (schedule_.SavesAfter(step)) Save(step);
    const std::optional<int64_t> every = recipe_.run.eval_every;
    if (every && step % *every == 0 && step != schedule_.total_steps &&
        stop_.wish == StopWish::kNone && data_.test != nullptr) {
      EvaluateAfter(Format("step %lld: test", static_cast<long long>(step)));
      trainee_->SetTrain(true);
    }
  }
  if (profiler_) profiler_->Finish();
  if (comms && Rank0()) PrintLine(comms->Table());
  ReportEnd(batches);
  return step;
}

void Trainer::ReadAllSteps() {
  for (const StepFacts& facts : ReadSteps(*trainee_, std::exchange(unread_, {}))) {
    progress_.AddStep(facts);
  }
}

// The first one of a run counts what it computes.
StepOutcome Trainer::OneStep(BatchLoader& batches, int64_t step) {
  const std::optional<FlopsProfilerConfig>& flops = recipe_.engine.monitors.flops_profiler;
  const bool first = step == schedule_.first_step + 1;
  const bool profiled = flops && step == flops->profile_step;
  std::optional<ForwardMeter> meter;
  if (first || profiled) meter.emplace(trainee_->module());
  const Clock::time_point start = Clock::now();
  StepOutcome outcome = TrainStep(*trainee_, batches, recipe_.run, step, untold_.times);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  untold_.seconds += seconds;
  untold_.compute_s += outcome.facts.compute_s;
  ++untold_.steps;
  if (first) own_flops_ = TrainingFlops(meter->flops());
  if (profiled && Rank0()) {
    ReportFlops(*flops, trainee_->module(), meter->operators(),
                {.step = step,
                 .micro_batches = schedule_.accumulation_steps,
                 .ranks = group_->world_size(),
                 .step_s = seconds});
  }
  return outcome;
}

// After each step.
void Trainer::TellBreakdown(int64_t step) {
  constexpr int64_t kEvery = 10;  // where steps_per_print says nothing
  const int64_t every = schedule_.print_every > 0 ? schedule_.print_every : kEvery;
  if (!recipe_.engine.monitors.wall_clock_breakdown || step % every != 0) return;
  if (Rank0()) {
    PrintLine(
        BreakdownLine(step, untold_.times, untold_.compute_s, untold_.seconds, untold_.steps));
  }
  untold_ = {};
}

// `loss` is the mean since the last call.
void Trainer::WriteMonitors(double loss) {
  std::vector<Scalar> scalars = {{"Train/Samples/train_loss", loss},
                                 {"Train/Samples/lr", trainee_->core().step_lr()}};
  if (recipe_.engine.precision.loss_scaler) {
    scalars.push_back({"Train/Samples/loss_scale", trainee_->core().step_loss_scale()});
  }
  monitors_->Write(progress_.samples(), scalars);
}

// 0: not known.
double Trainer::PeakFlopsOfAllRanks() const {
  const Dtype dtype = recipe_.engine.precision.autocast.value_or(recipe_.engine.precision.model);
  const std::vector<at::Tensor> parameters = trainee_->module().parameters();
  double peak = recipe_.run.peak_tflops.value_or(0) * 1e12;
  if (peak == 0 && !parameters.empty() && parameters.front().is_cuda()) {
    peak = PeakFlops(GpuName(), dtype).value_or(0);
  }
  return peak * group_->world_size();
}

// After the first step, whose operations were counted.
void Trainer::TellWork(double flops) {
  work_told_ = true;
  progress_.SetFlops(flops, PeakFlopsOfAllRanks());
  if (!Rank0() || RankDir().empty()) return;
  const EngineConfig& engine = recipe_.engine;
  WriteRankFile(
      kRunFileName,
      RunJson({.model = ModelTypeName(recipe_.model),
               .parameters = trainee_->total_parameters(),
               .dtype = DtypeName(engine.precision.autocast.value_or(engine.precision.model)),
               .world_size = group_->world_size(),
               .zero_stage = static_cast<int>(engine.zero.stage),
               .flops_per_step = flops,
               .plan = plan_}));
}

// Makes the ranks' losses one number, and their wishes to stop one decision.
void Trainer::Exchange(int64_t step) {
  RankWindow own = progress_.Window();
  own.stop = Wish();
  own.memory = Memory();
  own.flops = own_flops_;
  const int64_t steps = progress_.window_steps();
  std::vector<RankWindow> windows;
  for (const std::vector<double>& numbers : GatherNumbers(*group_, own.Numbers())) {
    windows.push_back(RankWindow::FromNumbers(numbers.data(), static_cast<int>(windows.size())));
  }
  const AllWindows all = Combine(windows);
  if (all.bad) throw TrainError(ExitCode::kBadInput, BadLossMessage(*all.bad));
  if (!work_told_) TellWork(all.flops);
  progress_.EndWindow(all);
  if (monitors_ && monitors_->any()) WriteMonitors(all.loss / static_cast<double>(steps));
  const double step_s = all.seconds / static_cast<double>(steps);
  // Each exchange makes a GPU wait, so there it comes about every second.
  interval_ = StepsUntilExchange(interval_, group_->device().is_cpu() ? step_s : step_s / 10);
  next_exchange_ = step + interval_;
  stop_ = {all.stop, all.stop_rank};
}

void Trainer::CheckReplicas(int64_t step) {
  uint64_t hash = recipe_.run.seed;
  for (const at::Tensor& parameter : trainee_->module().parameters()) {
    const at::Tensor bytes = parameter.detach().cpu().contiguous();
    hash = HashBytes(bytes.const_data_ptr(), bytes.nbytes(), hash);
  }
  const at::Tensor all = group_->AllGather(at::tensor(static_cast<int64_t>(hash), at::kLong));
  std::vector<uint64_t> hashes;
  for (int rank = 0; rank < group_->world_size(); ++rank) {
    hashes.push_back(static_cast<uint64_t>(all[rank].item<int64_t>()));
  }
  const std::string problem = DriftMessage(hashes, step, equal_step_);
  if (!problem.empty()) throw TrainError(ExitCode::kInternal, problem);
  equal_step_ = step;
}

void Trainer::Save(int64_t step) {
  if (!checkpointer_) return;
  try {
    checkpointer_->Save(trainee_->core(), schedule_.PositionAfter(step), progress_.samples());
  } catch (const TrainError&) {
    group_->Finish();  // all ranks throw; none is to take another's leaving for a loss
    throw;
  }
}

void Trainer::WaitForSave() {
  if (!checkpointer_) return;
  try {
    checkpointer_->Wait();
  } catch (const TrainError&) {
    group_->Finish();
    throw;
  }
}

void Trainer::EvaluateAfter(const std::string& prefix) {
  if (data_.test == nullptr) {
    if (Rank0()) PrintLine(NoTestData(recipe_.data));
    return;
  }
  const Clock::time_point start = Clock::now();
  const Evaluation result =
      Evaluate(*trainee_, *data_.test, *group_, recipe_.data.prefetch, [this] { return Wish(); });
  progress_.LeaveOut(Clock::now() - start);
  stop_ = {result.stop, result.stop_rank};
  if (stop_.wish == StopWish::kNone && Rank0()) PrintLine(EvaluationLine(prefix, result.sums));
}

void Trainer::LeaveEarly(int64_t step) {
  WaitForSave();
  group_->Finish();
  throw TrainError(
      ExitCode::kPreempted,
      Format("stopped after step %lld of %lld: %s; what was trained is saved in %s, start again to "
             "go on",
             static_cast<long long>(step), static_cast<long long>(schedule_.total_steps),
             StopReason(stop_.wish, stop_.rank).c_str(), recipe_.run.checkpoint_dir.c_str()));
}

void Trainer::ReportEnd(const BatchLoader& batches) const {
  const std::string waited = DataWaitLine(batches.waited_s(), progress_.training_s());
  if (!waited.empty() && Rank0() && TellsInfo()) PrintLine(waited);
  if (!group_->device().is_cpu() && Rank0() && TellsInfo()) PrintLine(PeakMemoryLine());
  if (!recipe_.engine.memory_breakdown) return;
  std::vector<RankWindow> windows;
  RankWindow own;
  own.memory = Memory();
  for (const std::vector<double>& numbers : GatherNumbers(*group_, own.Numbers())) {
    windows.push_back(RankWindow::FromNumbers(numbers.data(), static_cast<int>(windows.size())));
  }
  if (Rank0()) PrintLine(ComparisonText(plan_, Combine(windows).memory));
}

std::string Trainer::PeakMemoryLine() const {
  return Format("rank 0's GPU held at most %.2f GiB of tensors",
                static_cast<double>(DevicePeakBytes(group_->device())) / (1 << 30));
}

MemoryBytes Trainer::Memory() const { return ToBytes(trainee_->core().memory(), PeakRssBytes()); }

}  // namespace

void Train(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  Trainer(recipe, env).Run(env, device);
}

}  // namespace dslaunch
