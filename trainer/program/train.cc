#include "trainer/program/train.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/data/loader.h"
#include "trainer/models/models.h"
#include "trainer/program/explain.h"
#include "trainer/program/report.h"
#include "trainer/program/schedule.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr size_t kEvaluationBatch = 500;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Trainer {
 public:
  Trainer(const Recipe& recipe, const WorkerEnv& env)
      : recipe_(recipe),
        status_(env.status_fd),
        data_(OpenData(recipe.data, recipe.model)),
        checkpointer_(MakeCheckpointer(recipe, env, data_.train->size())),
        schedule_(MakeSchedule(recipe, data_.train->size(), env.world_size,
                               checkpointer_ ? checkpointer_->start() : Position{})),
        attempt_(static_cast<int64_t>(env.epoch)),
        samples_(checkpointer_ ? checkpointer_->samples_seen() : 0) {
    // Whatever can be wrong with the input shows before this rank makes others wait.
    if (env.rank == 0 && !recipe.run.metrics_jsonl.empty())
      metrics_.emplace(recipe.run.metrics_jsonl);
  }

  void Run(const WorkerEnv& env);

 private:
  static std::optional<Checkpointer> MakeCheckpointer(const Recipe& recipe, const WorkerEnv& env,
                                                      int64_t train_samples) {
    if (recipe.run.checkpoint_dir.empty()) return std::nullopt;
    return std::make_optional<Checkpointer>(recipe, env, train_samples);
  }

  bool Rank0() const { return group_->rank() == 0; }
  double TrainStep(Engine<Model>& engine, BatchLoader& batches);
  void TrainAll(Engine<Model>& engine);
  void EndWindow(const Engine<Model>& engine, int64_t step);
  void Save(const Engine<Model>& engine, int64_t step);
  void Evaluate(Engine<Model>& engine, const std::string& prefix);
  void Announce(const Model& model) const;

  // Steps whose losses have been added up on this rank but not yet over all ranks.
  struct Window {
    double loss = 0;
    int64_t steps = 0;
    int64_t samples = 0;  // over all ranks
    Clock::time_point start = Clock::now();
  };

  const Recipe& recipe_;
  StatusPipe status_;
  DataSplits data_;
  std::optional<Checkpointer> checkpointer_;
  Schedule schedule_;
  int64_t attempt_;
  std::optional<MetricsFile> metrics_;
  std::optional<ProcessGroup> group_;
  Window window_;
  Window epoch_;
  int64_t samples_;  // since the first step, over all ranks
  StatusLine last_status_ = {.event = StatusLine::Event::kStep, .loss = {}, .samples_per_s = {}};
};

void Trainer::Run(const WorkerEnv& env) {
  group_.emplace(env);
  if (checkpointer_) checkpointer_->Agree(*group_);
  at::manual_seed(recipe_.run.seed);
  const std::shared_ptr<Model> model = MakeModel(recipe_.model, data_.train->input_shape());
  Engine<Model> engine = Initialize(recipe_.engine, model, *group_);
  if (checkpointer_) checkpointer_->Load(engine.core());
  status_.Ready();
  Announce(*model);
  TrainAll(engine);
  Save(engine, schedule_.last_step());
  Evaluate(engine, "test");
  group_->Finish();
}

void Trainer::Announce(const Model& model) const {
  if (!Rank0()) return;
  int64_t weights = 0;
  for (const at::Tensor& parameter : model.parameters()) weights += parameter.numel();
  const BatchConfig& batch = recipe_.engine.batch;
  const std::string& scheduler = recipe_.engine.scheduler.name;
  PrintLine(Format(
      "training %s (%lld parameters) on %s: %lld samples, %lld steps of %lld = %lld x %lld x %d "
      "ranks, "
      "%s lr %g%s",
      ModelTypeName(recipe_.model), static_cast<long long>(weights), recipe_.data.path.c_str(),
      static_cast<long long>(data_.train->size()), static_cast<long long>(schedule_.total_steps),
      static_cast<long long>(batch.train_batch_size),
      static_cast<long long>(batch.micro_batch_size),
      static_cast<long long>(batch.accumulation_steps), group_->world_size(),
      recipe_.engine.optimizer->name.c_str(), recipe_.engine.optimizer->lr,
      scheduler.empty() ? "" : (", " + scheduler).c_str()));
  if (checkpointer_) PrintLine(checkpointer_->reason());
  if (schedule_.first_step >= schedule_.total_steps) {
    PrintLine(Format("nothing left to train: %lld of %lld steps are done",
                     static_cast<long long>(schedule_.first_step),
                     static_cast<long long>(schedule_.total_steps)));
  }
}

void Trainer::Save(const Engine<Model>& engine, int64_t step) {
  if (checkpointer_) checkpointer_->Save(engine.core(), schedule_.PositionAfter(step), samples_);
}

// Returns this rank's loss of the step: the mean over its micro-batches.
double Trainer::TrainStep(Engine<Model>& engine, BatchLoader& batches) {
  const int64_t parts = recipe_.engine.batch.accumulation_steps;
  double loss_sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const Batch batch = batches.Next();
    const at::Tensor loss = engine.Loss(engine.Forward(batch.inputs), batch.targets);
    engine.Backward(loss);
    engine.Step();
    loss_sum += loss.item<double>();
    window_.samples += batch.targets.size(0) * group_->world_size();
  }
  return loss_sum / static_cast<double>(parts);
}

void Trainer::TrainAll(Engine<Model>& engine) {
  BatchLoader batches(*data_.train, {.sampler = {.num_samples = data_.train->size(),
                                                 .rank = group_->rank(),
                                                 .world_size = group_->world_size(),
                                                 .shuffle = recipe_.data.shuffle,
                                                 .seed = recipe_.run.seed,
                                                 .drop_last = recipe_.data.drop_last},
                                     .batch_size = recipe_.engine.batch.micro_batch_size,
                                     .batches_per_epoch = schedule_.batches_per_epoch,
                                     .first_batch = schedule_.first_batch});
  engine.SetTrain();
  last_status_.total_steps = schedule_.total_steps;
  window_ = Window{};
  epoch_ = Window{};
  for (int64_t step = schedule_.first_step + 1; step <= schedule_.total_steps; ++step) {
    window_.loss += TrainStep(engine, batches);
    ++window_.steps;
    if (schedule_.SharesLossAfter(step)) EndWindow(engine, step);
    last_status_.step = step;
    last_status_.compute_s = engine.core().compute_s();
    status_.Step(last_status_);
    if (schedule_.SavesAfter(step)) Save(engine, step);
    const std::optional<int64_t> every = recipe_.run.eval_every;
    if (every && step % *every == 0 && step != schedule_.total_steps) {
      Evaluate(engine, Format("step %lld: test", static_cast<long long>(step)));
    }
  }
}

// Makes the window's losses one number on all ranks, and reports it.
void Trainer::EndWindow(const Engine<Model>& engine, int64_t step) {
  std::vector<double> sum = {window_.loss};
  group_->AllReduceSum(sum);
  const double loss = sum[0] / group_->world_size() / static_cast<double>(window_.steps);
  if (!std::isfinite(loss)) {
    throw TrainError(ExitCode::kBadInput,
                     Format("the loss is %g by step %lld; try a lower learning rate", loss,
                            static_cast<long long>(step)));
  }
  const double seconds = SecondsSince(window_.start);
  const double samples_per_s = static_cast<double>(window_.samples) / seconds;
  samples_ += window_.samples;
  epoch_.loss += loss * static_cast<double>(window_.steps);
  epoch_.steps += window_.steps;
  epoch_.samples += window_.samples;

  last_status_.loss = loss;
  last_status_.samples_per_s = samples_per_s;
  const int64_t epoch = schedule_.EpochOf(step);
  if (metrics_) {
    metrics_->Append({.step = step,
                      .attempt = attempt_,
                      .epoch = epoch,
                      .loss = loss,
                      .lr = engine.core().step_lr(),
                      .grad_norm = engine.core().grad_norm(),
                      .samples = samples_,
                      .step_s = seconds,
                      .samples_per_s = samples_per_s});
  }
  const int64_t per_print = recipe_.engine.steps_per_print;
  if (Rank0() && per_print > 0 && step % per_print == 0) {
    PrintLine(Format("step %lld/%lld: loss %.4f, lr %g, %.0f samples/s",
                     static_cast<long long>(step), static_cast<long long>(schedule_.total_steps),
                     loss, engine.core().step_lr(), samples_per_s));
  }
  if (schedule_.EndsEpoch(step)) {
    if (Rank0()) {
      PrintLine(Format("epoch %lld/%lld: loss %.4f, %.0f samples/s", static_cast<long long>(epoch),
                       static_cast<long long>(schedule_.EpochOf(schedule_.total_steps)),
                       epoch_.loss / static_cast<double>(epoch_.steps),
                       static_cast<double>(epoch_.samples) / SecondsSince(epoch_.start)));
    }
    epoch_ = Window{};
  }
  window_ = Window{};
}

// Every test sample counts exactly once, whatever the number of ranks.
void Trainer::Evaluate(Engine<Model>& engine, const std::string& prefix) {
  const Clock::time_point start = Clock::now();
  const at::NoGradGuard no_grad;
  engine.SetEval();
  const std::vector<int64_t> indices =
      EvaluationIndices(data_.test->size(), group_->rank(), group_->world_size());
  std::vector<double> sums(3);  // correct, samples, loss
  for (size_t begin = 0; begin < indices.size(); begin += kEvaluationBatch) {
    const Batch batch = data_.test->Fetch(
        std::span(indices).subspan(begin, std::min(kEvaluationBatch, indices.size() - begin)));
    const at::Tensor logits = engine.Forward(batch.inputs);
    sums[0] += static_cast<double>(logits.argmax(1).eq(batch.targets).sum().item<int64_t>());
    sums[1] += static_cast<double>(batch.targets.size(0));
    sums[2] += at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum).item<double>();
  }
  engine.SetTrain();
  group_->AllReduceSum(sums);
  if (Rank0()) {
    PrintLine(AccuracyLine(prefix, static_cast<int64_t>(sums[0]), static_cast<int64_t>(sums[1]),
                           sums[2] / sums[1]));
  }
  // Evaluation is not training time.
  window_.start += Clock::now() - start;
  epoch_.start += Clock::now() - start;
}

[[noreturn]] void Rethrow(const std::string& what, const WorkerEnv& env) {
  std::string line = what.substr(0, what.find('\n'));
  if (line.starts_with('[')) line.erase(0, line.find("] ") + 2);  // the library's file and line
  switch (ClassifyCommFailure(what)) {
    case CommFailure::kPeerLost:
      throw TrainError(
          ExitCode::kUnavailable,
          "another rank was lost, so this one stops too; the cause is there, not here (" + line +
              ")");
    case CommFailure::kTimedOut:
      throw TrainError(ExitCode::kTimedOut,
                       "another rank did not answer in time (meeting point " + env.master_addr +
                           ":" + std::to_string(env.master_port) + "; " + line + ")");
    case CommFailure::kNone:
      throw TrainError(ExitCode::kInternal, "internal error: " + line);
  }
  std::abort();
}

}  // namespace

void Train(const Recipe& recipe, const WorkerEnv& env) {
  // The libraries' warnings take many lines, with stack traces, for what a rank's own message says
  // in one.
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
  c10::initLogging();
  try {
    Trainer(recipe, env).Run(env);
  } catch (const TrainError&) {
    throw;
  } catch (const c10::DistError& error) {
    Rethrow(std::string("c10d: ") + error.what_without_backtrace(), env);
  } catch (const c10::Error& error) {
    Rethrow(error.what_without_backtrace(), env);
  } catch (const std::exception& error) {
    Rethrow(error.what(), env);
  }
}

}  // namespace dslaunch
