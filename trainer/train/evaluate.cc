#include "trainer/train/evaluate.h"

#include <ATen/ATen.h>

#include <utility>

#include "trainer/base/by_rank.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/numbers.h"
#include "trainer/data/chat_dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/nn/cross_entropy.h"

namespace dslaunch {
namespace {

constexpr int64_t kMostSamples = 500;
// Limits the elements of the input of one forward pass in an evaluation.
constexpr int64_t kMostNumbers = int64_t{1} << 20;

EvaluationSums::Kind KindOf(const Dataset& data, const at::Tensor& output,
                            const at::Tensor& targets) {
  if (IsChatData(data)) return EvaluationSums::Kind::kAnswers;
  if (data.tokens_per_sample() > 0) return EvaluationSums::Kind::kTokens;
  const bool classes =
      output.dim() == 2 && targets.dim() == 1 && targets.scalar_type() == at::kLong;
  return classes ? EvaluationSums::Kind::kClasses : EvaluationSums::Kind::kOther;
}

// Adds a batch to `sums` and `metrics`. Runs on all ranks of the last pipeline stage, because the
// loss and the whole output may need all parts of the model. Only the sums of one of these ranks
// enter the result.
void AddBatch(const TrainingModel& training_model, const Dataset& data, const at::Tensor& output,
              const at::Tensor& cpu_targets, EvaluationSums& sums,
              UserMetrics::Evaluation& metrics) {
  const at::Tensor targets = cpu_targets.to(output.device());
  const AutocastScope autocast = training_model.core().Autocast();
  const at::Tensor loss = training_model.model().Loss(output, targets, at::Reduction::Sum);
  const at::Tensor whole = metrics.any() || data.tokens_per_sample() == 0
                               ? training_model.WholeOutput(output)
                               : at::Tensor();
  if (!training_model.counts()) return;
  sums.kind = KindOf(data, whole, targets);
  sums.loss += loss.item<double>();
  sums.targets += targets.ne(kNoTarget).sum().item<int64_t>();
  if (sums.kind == EvaluationSums::Kind::kClasses) {
    sums.correct += whole.argmax(1).eq(targets).sum().item<int64_t>();
  }
  metrics.Add(whole, targets);
}

// Returns the size and shape of `data`, such as "60000 training samples of 1 x 28 x 28", where
// `what` is "training samples"; "no " and `what` if `data` is null.
std::string DataText(const Dataset* data, const std::string& what) {
  if (data == nullptr) return "no " + what;
  std::string text = std::to_string(data->size()) + " " + what;
  const char* joint = " of ";
  for (const int64_t size : data->input_shape())
    text += std::exchange(joint, " x ") + std::to_string(size);
  return text;
}

bool AnyStops(const ProcessGroup& group, StopRequest stop) {
  at::Tensor requests = at::full({1}, stop == StopRequest::kNone ? 0 : 1, at::kLong);
  group.AllReduce(requests, ReduceOp::kMax);
  return requests.item<int64_t>() > 0;
}

}  // namespace

at::Tensor OneSample(const Dataset& data) {
  return BatchLoader(data, {0}, /*batch_size=*/1, /*prefetch=*/0).Next().inputs;
}

EvaluationBatches::EvaluationBatches(const Dataset& data, const ProcessGroup& replicas,
                                     int64_t micro_batch_size, int64_t prefetch)
    : size_(ForwardSamples(data, micro_batch_size)),
      rounds_(((data.size() + replicas.world_size() - 1) / replicas.world_size() + size_ - 1) /
              size_),
      left_((data.size() - replicas.rank() + replicas.world_size() - 1) / replicas.world_size()),
      loader_(data, EvaluationIndices(data.size(), replicas.rank(), replicas.world_size()), size_,
              prefetch) {}

Batch EvaluationBatches::Next() {
  left_ -= size_;
  return loader_.Next();
}

int64_t ForwardSamples(const Dataset& data, int64_t micro_batch_size) {
  // Logits of text are large, so a pass has one micro-batch.
  if (data.tokens_per_sample() > 0) return micro_batch_size;
  int64_t numbers = 1;
  for (const int64_t size : data.input_shape()) numbers *= size;
  return std::max(micro_batch_size,
                  std::min(kMostSamples, kMostNumbers / std::max<int64_t>(numbers, 1)));
}

Evaluation Evaluate(TrainingModel& training_model, const Dataset& data, const ProcessGroup& group,
                    const UserMetrics& metrics, int64_t prefetch,
                    const std::function<StopRequest()>& stop_request) {
  const at::NoGradGuard no_grad;
  const SavedWeights saved(training_model.core());
  training_model.SetTrain(false);
  const bool is_stale = training_model.core().stale_training() != nullptr;
  EvaluationBatches batches(data, is_stale ? group : training_model.replicas(),
                            training_model.core().micro_batch_size(), prefetch);
  const bool together = training_model.core().ForwardIsCollective();
  EvaluationSums own;
  UserMetrics::Evaluation own_metrics(metrics);
  StopRequest stop = StopRequest::kNone;
  for (int64_t round = 0; round < batches.rounds(); ++round) {
    stop = stop_request();
    if (together ? AnyStops(group, stop) : stop != StopRequest::kNone) break;
    if (batches.HasNext()) {
      const Batch batch = batches.Next();
      const at::Tensor output = training_model.Forward(batch.inputs);
      if (training_model.is_last_stage()) {
        AddBatch(training_model, data, output, batch.targets, own, own_metrics);
      }
    } else if (together) {
      training_model.Forward(OneSample(data));
    }
  }
  const auto all = GatherNumbers(
      group, {own.loss, static_cast<double>(own.targets), static_cast<double>(own.correct),
              static_cast<double>(own.kind), static_cast<double>(stop)});
  Evaluation result;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<double>& one = all[rank];
    result.sums.loss += one[0];
    result.sums.targets += static_cast<int64_t>(one[1]);
    result.sums.correct += static_cast<int64_t>(one[2]);
    // A rank without samples has not set the kind of its sums, so ranks with targets supply it.
    if (one[1] > 0) result.sums.kind = static_cast<EvaluationSums::Kind>(one[3]);
    const auto requested = static_cast<StopRequest>(one[4]);
    if (requested == StopRequest::kNone || result.stop) continue;
    result.stop = {requested, static_cast<int>(rank)};
  }
  if (!result.stop) result.sums.metrics = own_metrics.Results(group);
  return result;
}

void CheckSameData(const Dataset* train, const Dataset* test, ProcessGroup& group) {
  const std::string of_training =
      train == nullptr ? "" : DataText(train, "training samples") + " and ";
  const std::vector<std::string> data =
      GatherTexts(group, of_training + DataText(test, "samples to evaluate on"));
  if (GroupRanks(data).size() == 1) return;
  group.Finish();
  throw TrainError(ExitCode::kBadInput,
                   "the ranks do not have the same data (" +
                       ByRank(
                           data, [](const std::string& text) { return text; }, group.job_ranks()) +
                       ")");
}

void ReportResults(const EvaluationResults& results, const std::string& line, const EvaluatedAt& at,
                   const ResultSinks& sinks) {
  sinks.log.Result(line);
  sinks.progress.AddEvaluation(at.step, results);
  if (sinks.monitors == nullptr) return;
  std::vector<Scalar> scalars;
  for (const auto& [name, value] : results) scalars.push_back({"Eval/Samples/" + name, value});
  sinks.monitors->Write(at.samples, scalars);
}

void ReportEvaluation(const EvaluationSums& sums, const std::string& prefix, const EvaluatedAt& at,
                      const ResultSinks& sinks) {
  ReportResults(ResultsOf(sums), EvaluationLine(prefix, sums), at, sinks);
}

std::string NoTestData(const DataConfig& data) {
  return DataName(data) +
         (data.type == DataConfig::Type::kPlugin
              ? " has no evaluation data"
              : " has no evaluation data; give data.val_path or data.val_fraction");
}

}  // namespace dslaunch
