// Writes a model's predictions for test data into one file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dslaunch/process_group.h"
#include "trainer/data/dataset.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Predicts each sample of `data` once. Collective: each replica predicts its share, in rounds, so
// that memory does not depend on the number of samples. Rank 0 writes JSON lines in the order of
// the samples to `file`, which appears once it is complete, or to stdout if `file` is empty:
//   {"index": 0, "prediction": 7, "probability": 0.98}
// The prediction is the likeliest class, or for text the likeliest next token. If the model returns
// one number per sample, the prediction is that number, without a probability. Throws kIo if the
// predictions cannot be written.
void Predict(TrainingModel& training_model, const Dataset& data, const ProcessGroup& group,
             int64_t prefetch, const std::string& file);

}  // namespace dslaunch
