#include "trainer/program/predict.h"

#include <ATen/ATen.h>

#include <cmath>

#include "trainer/base/log.h"
#include "trainer/program/prediction_writer.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/report.h"

namespace dslaunch {
namespace {

// [samples, 2]: predictions, and their probabilities, nan for none. `output` is the model's.
at::Tensor PredictionsOf(const at::Tensor& output) {
  const at::Tensor logits = output.dim() == 3 ? output.select(1, -1) : output;
  if (logits.dim() != 2 || logits.size(1) == 1) {
    const at::Tensor values = logits.reshape({-1}).to(at::kDouble);
    return at::stack({values, at::full_like(values, std::nan(""))}, 1);
  }
  const auto [probability, likeliest] = at::softmax(logits.to(at::kFloat), 1).max(1);
  return at::stack({likeliest.to(at::kDouble), probability.to(at::kDouble)}, 1);
}

Prediction FromRow(const double* row) {
  return {row[0], std::isnan(row[1]) ? std::nullopt : std::optional(row[1])};
}

}  // namespace

void Predict(TrainingModel& training_model, const Dataset& data, const ProcessGroup& group,
             int64_t prefetch, const std::string& file) {
  const at::NoGradGuard no_grad;
  training_model.SetTrain(false);
  std::optional<PredictionWriter> writer;
  if (group.rank() == 0) writer.emplace(file);
  const ProcessGroup& replicas = training_model.replicas();
  EvaluationBatches batches(data, replicas, training_model.core().micro_batch_size(), prefetch);
  const int64_t ranks = replicas.world_size(), most = batches.size();
  // A round predicts `most` samples on each replica; together they are consecutive.
  for (int64_t first = 0; first < data.size(); first += most * ranks) {
    const at::Tensor own = at::zeros({most, 2}, at::kDouble);
    if (batches.HasNext()) {
      const at::Tensor predictions =
          PredictionsOf(training_model.WholeOutput(training_model.Forward(batches.Next().inputs)));
      own.slice(0, 0, predictions.size(0)).copy_(predictions);
    } else if (training_model.core().ForwardIsCollective()) {
      training_model.Forward(OneSample(data));
    }
    const at::Tensor all =
        replicas.AllGather(own).transpose(0, 1).contiguous();  // [most, replicas, 2]
    if (!writer) continue;
    std::string lines;
    const double* row = all.const_data_ptr<double>();
    for (int64_t i = first; i < std::min(data.size(), first + most * ranks); ++i, row += 2) {
      lines += PredictionLine(i, FromRow(row));
    }
    writer->Write(lines);
  }
  if (!writer) return;
  writer->Finish();
  if (!file.empty()) {
    PrintError(Format("%lld predictions are written to %s", static_cast<long long>(data.size()),
                      file.c_str()));
  }
}

}  // namespace dslaunch
