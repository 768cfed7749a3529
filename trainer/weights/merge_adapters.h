// Adds adapters to the weights that they were trained on.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/config/model_family.h"
#include "trainer/weights/adapter_record.h"

namespace dslaunch {

// Writes the weights of `record`'s base with the adapters of `checkpoint` added, W + scale * B A
// computed in fp32, into `out`, under the base's names of tensors and with its files of the model
// and the tokenizer (CopyModelFiles). Tensors keep the base's dtype unless `dtype` is given. One
// tensor is in memory at a time, beside the adapters. Throws kBadInput, naming the tensor, if the
// base has changed since the adapters were trained or lacks one of their layers, and the errors of
// WriteWeights. Precondition: the checkpoint is complete.
void MergeAdapters(const Checkpoint& checkpoint, const AdapterRecord& record,
                   const ModelConfig& model, std::optional<at::ScalarType> dtype,
                   const std::string& out);

}  // namespace dslaunch
