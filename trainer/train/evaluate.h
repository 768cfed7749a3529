// Measuring a model on test data.
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
  StopDecision stop;  // where there is one the sums are not those of all samples
};

// Collective: every sample of `data` counts exactly once, whatever the number of ranks, with the
// weights and buffers that would be saved now (SavedWeights). Leaves the model in evaluation mode.
// Throws TrainError on all ranks where one of `metrics` fails. `prefetch` batches are read ahead;
// `stop_request` is asked between two of them.
Evaluation Evaluate(TrainingModel& training_model, const Dataset& data, const ProcessGroup& group,
                    const UserMetrics& metrics, int64_t prefetch,
                    const std::function<StopRequest()>& stop_request);

// Throws TrainError kBadInput on all ranks, after they have left the group, unless all of them have
// data of the same size and shape: else they would not make the same number of steps. Collective.
// `train` may be null, where nothing is trained, and so may `test`, where nothing is evaluated.
void CheckSameData(const Dataset* train, const Dataset* test, ProcessGroup& group);

// The weights that were evaluated: after how many steps and samples of training.
struct EvaluatedAt {
  int64_t step = 0;
  int64_t samples = 0;
};

// Where the results of an evaluation go; `monitors` may be null.
struct ResultSinks {
  const TrainLog& log;
  Progress& progress;
  Monitors* monitors;
};

// On every rank. What is printed is EvaluationLine with `prefix`.
void ReportEvaluation(const EvaluationSums& sums, const std::string& prefix, const EvaluatedAt& at,
                      const ResultSinks& sinks);

// A replica's share of the samples, each once.
class EvaluationBatches {
 public:
  EvaluationBatches(const Dataset& data, const ProcessGroup& replicas, int64_t micro_batch_size,
                    int64_t prefetch);

  // Samples of a batch, of which the last one may have fewer.
  int64_t size() const { return size_; }
  int64_t rounds() const { return rounds_; }  // batches of the replica that has most
  bool HasNext() const { return left_ > 0; }
  Batch Next();

 private:
  int64_t size_;
  int64_t rounds_;
  int64_t left_;  // samples
  BatchLoader loader_;
};

// Inputs with which a replica that has run out of samples takes part in the others' forward pass,
// where that is collective.
at::Tensor OneSample(const Dataset& data);

// Samples of one forward pass without gradients: more than a micro-batch where samples are small.
int64_t ForwardSamples(const Dataset& data, int64_t micro_batch_size);

// "data.path has nothing to evaluate on; ..."
std::string NoTestData(const DataConfig& data);

}  // namespace dslaunch
