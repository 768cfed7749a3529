#include "trainer/program/run.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dslaunch/process_group.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_files.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/comm/explain.h"
#include "trainer/data/dataset.h"
#include "trainer/device/cuda_plugin.h"
#include "trainer/profile/monitors.h"
#include "trainer/program/compare.h"
#include "trainer/program/continue_prompts.h"
#include "trainer/program/evaluation_texts.h"
#include "trainer/program/log_likelihoods.h"
#include "trainer/program/plan.h"
#include "trainer/program/predict.h"
#include "trainer/program/trial.h"
#include "trainer/resume/adapters.h"
#include "trainer/resume/run_start.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/prepare.h"
#include "trainer/train/report.h"
#include "trainer/train/train.h"

namespace dslaunch {
namespace {

// Selects the weights for modes that do not train: those in the recipe's checkpoint_dir, else in
// run.resume_from, else in run.init_weights. Returns a line about the selected weights and the
// skipped ones. Throws on every rank if there are no weights. Collective.
std::string FindWeights(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group,
                        std::optional<Checkpointer>& checkpointer, std::optional<RunStart>& other) {
  const std::string& init_weights = recipe.run.init_weights;
  std::string own;
  if (!recipe.run.checkpoint_dir.empty()) {
    checkpointer.emplace(recipe, env, group);
    if (checkpointer->found()) {
      const std::string use = recipe.lora ? "; adapters of " + init_weights
                                          : "; run.init_weights (" + init_weights + ") is not used";
      return checkpointer->reason() + (init_weights.empty() ? "" : use);
    }
    own = "; " + checkpointer->reason();
  }
  if (!recipe.run.resume_from.empty()) {
    other.emplace(recipe, group, /*train_samples=*/0);
    return other->reason() + own;
  }
  if (!init_weights.empty()) {
    const std::string adapters = recipe.lora ? recipe.lora->init_weights : "";
    return "weights from " + init_weights +
           (adapters.empty() ? "" : " with the adapters of " + adapters) + own;
  }
  group.Finish();
  throw TrainError(ExitCode::kBadInput,
                   checkpointer->reason() + ", and no run.init_weights (--init_weights)");
}

// Throws on every rank, after it has left the group, if the selected checkpoint has other adapters
// than the recipe. Collective.
void CheckFoundAdapters(const Recipe& recipe, ProcessGroup& group,
                        const std::optional<Checkpointer>& checkpointer,
                        const std::optional<RunStart>& other) {
  const Manifest* const found = other                                   ? &other->manifest()
                                : checkpointer && checkpointer->found() ? checkpointer->loaded()
                                                                        : nullptr;
  if (found == nullptr) return;
  try {
    CheckAdapters(*found, DescribeAdapters(recipe, group),
                  other ? recipe.run.resume_from : recipe.run.checkpoint_dir);
  } catch (const TrainError&) {
    group.Finish();
    throw;
  }
}

// A model with trained weights in evaluation mode, on all ranks.
struct Loaded {
  TrainingModel& training_model;
  const ProcessGroup& group;
  const Manifest* manifest;  // manifest of the checkpoint; null for weights from a file
};

// Prepares a model with trained weights for evaluation or prediction, and passes it to `work`.
// `data` may be null. Rank 0 calls `say` with a line about the weights.
void WithWeights(Recipe recipe, const WorkerEnv& env, const RankDevice& device, const Dataset* data,
                 const at::Tensor& sample, void (*say)(const std::string&), Progress& progress,
                 const std::function<void(const Loaded&)>& work) {
  if (recipe.run.checkpoint_dir.empty() && recipe.run.init_weights.empty() &&
      recipe.run.resume_from.empty()) {
    RefuseInput("there are no weights; give --checkpoint_dir or --init_weights");
  }
  // Staleness makes servers wait for steps, but no rank makes steps.
  recipe.engine.parallel.staleness.reset();
  // A prompt may have any length, so its tokens cannot be divided among ranks.
  recipe.engine.tensor_parallel.sequence_parallel = false;
  ProcessGroup group(env, device, GroupOptions(recipe.run));
  if (data != nullptr) CheckSameData(nullptr, data, group);
  std::optional<Checkpointer> checkpointer;
  std::optional<RunStart> other;
  const std::string weights = FindWeights(recipe, env, group, checkpointer, other);
  CheckFoundAdapters(recipe, group, checkpointer, other);
  if (group.rank() == 0) say(weights);
  const std::unique_ptr<TrainingModel> training_model =
      PrepareTrainingModel(recipe, sample, group, [&](EngineCore& engine) {
        if (checkpointer) checkpointer->Load(engine);
        if (other) other->Load(engine);
      });
  training_model->SetTrain(false);
  progress.Ready();
  work({*training_model, group, checkpointer ? checkpointer->loaded() : nullptr});
  group.Barrier();  // waits longer for rank 0 than Finish does
  group.Finish();
}

// Returns the data for evaluation; throws kBadInput without such data. Rank 0 calls `say` with a
// line about data that is not used.
std::unique_ptr<Dataset> OpenTestData(const Recipe& recipe, const WorkerEnv& env,
                                      void (*say)(const std::string&)) {
  DataSplits data = OpenData(recipe.data, recipe.model.needs());
  if (data.test == nullptr) throw TrainError(ExitCode::kBadInput, NoTestData(recipe.data));
  if (env.rank == 0 && !data.test_notice.empty()) say(data.test_notice);
  return std::move(data.test);
}

// Owns the outputs that receive an evaluation's results.
class Outputs {
 public:
  Outputs(const Recipe& recipe, const WorkerEnv& env)
      : log_(env.rank, recipe.engine.log_level),
        progress_({.rank = env.rank,
                   .log = log_,
                   .status_fd = env.status_fd,
                   .metrics_jsonl = recipe.run.metrics_jsonl,
                   .rank_dir = env.rank == 0 ? RankDir() : "",
                   .attempt = static_cast<int64_t>(env.attempt)}),
        monitors_(MakeMonitors(recipe.engine.monitors, env.rank)) {}

  Progress& progress() { return progress_; }
  ResultSinks sinks() { return {log_, progress_, monitors_.get()}; }

 private:
  const TrainLog log_;
  Progress progress_;
  const std::unique_ptr<Monitors> monitors_;
};

EvaluatedAt StepOf(const Loaded& loaded) {
  const Manifest none;
  const Manifest& manifest = loaded.manifest == nullptr ? none : *loaded.manifest;
  return {manifest.position.step, manifest.samples_seen};
}

void RunEvaluate(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const std::unique_ptr<Dataset> data = OpenTestData(recipe, env, PrintLine);
  const UserMetrics metrics(recipe.run.metrics);
  Outputs outputs(recipe, env);
  WithWeights(recipe, env, device, data.get(), OneSample(*data), PrintLine, outputs.progress(),
              [&](const Loaded& loaded) {
                const Evaluation result =
                    Evaluate(loaded.training_model, *data, loaded.group, metrics,
                             recipe.data.prefetch, [] { return StopRequest::kNone; });
                ReportEvaluation(result.sums, "test", StepOf(loaded), outputs.sinks());
              });
}

// Returns an input, one sequence of the maximum length, with which a model for texts is prepared.
at::Tensor TextSample(const Recipe& recipe) {
  return at::zeros({1, recipe.model.needs().positions}, at::kLong);
}

void RunEvaluateTexts(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const TextCodec codec = CodecOf(recipe);
  const DataNeeds needs = recipe.model.needs();
  const EvaluationTexts texts =
      ReadEvaluationTexts(recipe.run.eval_file, codec, needs.vocabulary, needs.positions);
  Outputs outputs(recipe, env);
  WithWeights(recipe, env, device, nullptr, TextSample(recipe), PrintLine, outputs.progress(),
              [&](const Loaded& loaded) {
                const EvaluationResults results = ResultsOfTexts(
                    texts, LogLikelihoods(loaded.training_model, texts.sequences, loaded.group));
                ReportResults(results, TextsLine("test", texts, results), StepOf(loaded),
                              outputs.sinks());
              });
}

Progress NoMetrics(const WorkerEnv& env) {
  return Progress(
      {.rank = env.rank, .status_fd = env.status_fd, .metrics_jsonl = {}, .rank_dir = {}});
}

void RunPredict(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const std::unique_ptr<Dataset> data = OpenTestData(recipe, env, PrintError);
  Progress progress = NoMetrics(env);
  WithWeights(recipe, env, device, data.get(), OneSample(*data), PrintError, progress,
              [&](const Loaded& loaded) {
                Predict(loaded.training_model, *data, loaded.group, recipe.data.prefetch,
                        recipe.run.predictions);
              });
}

void RunContinue(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const TextCodec codec = CodecOf(recipe);
  const std::vector<TextPrompt> prompts = PromptsOf(recipe, codec);
  Progress progress = NoMetrics(env);
  WithWeights(recipe, env, device, nullptr, TextSample(recipe), PrintError, progress,
              [&](const Loaded& loaded) {
                ContinuePrompts(loaded.training_model, recipe, codec, prompts, loaded.group);
              });
}

// Throws if the parts of a tensor-parallel model are on different nodes. The ranks of a node have
// consecutive numbers.
void CheckPartsOnNode(const EngineConfig& engine, const WorkerEnv& env) {
  const std::string problem =
      PartsAcrossNodes(engine.tensor_parallel, env.rank - env.local_rank, env.local_world_size);
  if (!problem.empty()) RefuseInput("engine.tensor_parallel.autotp_size " + problem);
}

void RunMode(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  switch (recipe.run.mode) {
    case RunConfig::Mode::kTrain:
      return Train(recipe, env, device);
    case RunConfig::Mode::kEvaluate:
      return recipe.run.has_own_texts() ? RunEvaluateTexts(recipe, env, device)
                                        : RunEvaluate(recipe, env, device);
    case RunConfig::Mode::kPredict:
      return recipe.run.has_own_texts() ? RunContinue(recipe, env, device)
                                        : RunPredict(recipe, env, device);
    case RunConfig::Mode::kPlanMemory:
      return PlanMemoryOfRecipe(recipe, env, device);
    case RunConfig::Mode::kPlanPipeline:
      return PlanPipelineOfRecipe(recipe, env);
    case RunConfig::Mode::kComparePrecision:
      return ComparePrecision(recipe, env, device);
    case RunConfig::Mode::kTrial:
      return RunTrial(recipe, env, device);
  }
}

// Returns the device whose memory the plan reports. Nothing is computed on the device.
RankDevice DeviceToPlanFor(const Recipe& recipe, const WorkerEnv& env) {
  const bool asks = recipe.run.mode == RunConfig::Mode::kPlanMemory && env.rank == 0;
  if (asks && recipe.run.device != DeviceKind::kCpu) {
    try {
      return SelectDevice(DeviceKind::kAuto, env);
    } catch (const TrainError&) {
      // The plan is also useful without a device, so it then omits the device's memory.
    }
  }
  return {};
}

[[noreturn]] void Rethrow(const std::string& what, const WorkerEnv& env) {
  std::string line = what.substr(0, what.find('\n'));
  // LibTorch begins messages with file and line in brackets, which users do not need, so they are
  // removed.
  if (line.starts_with('[')) line.erase(0, line.find("] ") + 2);
  if (IsNotGathered(line)) RefuseInput(line);
  if (IsOutOfMemory(what)) {
    throw TrainError(
        ExitCode::kUnavailable,
        "out of memory: " + line +
            " (--plan_memory estimates what a rank needs for the model; to reduce it, use more "
            "ranks, a higher ZeRO stage or smaller micro-batches)");
  }
  switch (ClassifyCommFailure(what)) {
    case CommFailure::kPeerLost:
      throw PeerLost(line);
    case CommFailure::kTimedOut:
      throw PeerLate((env.rank_socket.empty() ? "rank 0 listens at " + env.master_addr + ":" +
                                                    std::to_string(env.master_port) + "; "
                                              : std::string()) +
                     line);
    case CommFailure::kNone:
      throw TrainError(ExitCode::kInternal, "internal error: " + line);
  }
  std::abort();
}

}  // namespace

void Run(const Recipe& recipe, const WorkerEnv& env) {
  // Warnings of the libraries would repeat each rank's one-line message in many lines with stack
  // traces, so only errors are logged.
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
  c10::initLogging();
  try {
    const bool plans = recipe.run.mode == RunConfig::Mode::kPlanMemory ||
                       recipe.run.mode == RunConfig::Mode::kPlanPipeline;
    const RankDevice device =
        plans ? DeviceToPlanFor(recipe, env) : SelectDevice(recipe.run.device, env);
    // A plugin must not gain privileges through setuid programs. Selecting the device may start
    // nvidia-modprobe, which is a setuid program, so this call comes after it.
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!plans) CheckPartsOnNode(recipe.engine, env);
    RunMode(recipe, env, device);
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
