// Evaluates a model on test data.
#pragma once

#include <functional>
#include <optional>

#include "dslaunch/process_group.h"
#include "trainer/base/stop.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/profile/monitors.h"
#include "trainer/train/progress.h"
#include "trainer/train/report.h"
#include "trainer/train/train_log.h"
#include "trainer/train/training_model.h"
#include "trainer/train/user_metrics.h"

namespace dslaunch {

struct Evaluation {
  EvaluationSums sums;
  StopDecision stop;  // if the ranks stopped early, `sums` does not include all samples
};

// Evaluates every sample of `data` exactly once, for any number of ranks, with the weights and
// buffers that a checkpoint would save now (SavedWeights). Collective. Leaves the model in
// evaluation mode. Throws TrainError on all ranks if one of `metrics` fails. Reads `prefetch`
// batches ahead and calls `stop_request` between two batches.
Evaluation Evaluate(TrainingModel& training_model, const Dataset& data, const ProcessGroup& group,
                    const UserMetrics& metrics, int64_t prefetch,
                    const std::function<StopRequest()>& stop_request);

// Throws TrainError kBadInput on all ranks, after they have left the group, unless all ranks have
// data of the same size and shape, because ranks with different data would make different numbers
// of steps. Collective. `train` is null if nothing is trained, `test` if nothing is evaluated.
void CheckSameData(const Dataset* train, const Dataset* test, ProcessGroup& group);

// The numbers of steps and samples that were trained before an evaluation.
struct EvaluatedAt {
  int64_t step = 0;
  int64_t samples = 0;
};

// The outputs that receive the results of an evaluation. `monitors` may be null.
struct ResultSinks {
  const TrainLog& log;
  Progress& progress;
  Monitors* monitors;
};

// Prints `line` on rank 0 and passes the results to `sinks`. Call this on every rank.
void ReportResults(const EvaluationResults& results, const std::string& line, const EvaluatedAt& at,
                   const ResultSinks& sinks);
// Reports the results of `sums` with ReportResults. The line that is printed begins with `prefix`.
void ReportEvaluation(const EvaluationSums& sums, const std::string& prefix, const EvaluatedAt& at,
                      const ResultSinks& sinks);

// Loads one replica's share of the samples. Each sample belongs to exactly one replica.
class EvaluationBatches {
 public:
  EvaluationBatches(const Dataset& data, const ProcessGroup& replicas, int64_t micro_batch_size,
                    int64_t prefetch);

  // Returns the number of samples in a batch; the last batch may have fewer.
  int64_t size() const { return size_; }
  int64_t rounds() const { return rounds_; }  // number of batches of the replica that has the most
  bool HasNext() const { return left_ > 0; }
  Batch Next();

 private:
  int64_t size_;
  int64_t rounds_;
  int64_t left_;  // samples that Next() has not returned yet
  BatchLoader loader_;
};

// Returns the input of one sample. If the forward pass is collective, a replica that has no samples
// left runs this input, because the other replicas need every replica in the pass.
at::Tensor OneSample(const Dataset& data);

// Returns the number of samples in one forward pass without gradients. The number exceeds
// `micro_batch_size` if samples are small.
int64_t ForwardSamples(const Dataset& data, int64_t micro_batch_size);

// Returns an error message for a run without test data: "data.path has nothing to evaluate on; ..."
std::string NoTestData(const DataConfig& data);

}  // namespace dslaunch
