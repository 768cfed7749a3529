// Merges adapters into the weights on which they were trained.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/config/model_family.h"
#include "trainer/weights/adapter_record.h"

namespace dslaunch {

// Writes the base weights of `record`, with the adapters of `checkpoint` added, into the folder
// `out`. The sum W + scale * B A is computed in fp32. The output has the base's names of tensors,
// and the base's files of the model and the tokenizer (CopyModelFiles). Tensors keep the base's
// dtype unless `dtype` is given. Besides the adapters, one tensor is in memory at a time. Throws
// kBadInput, naming the tensor, if the base has changed since the adapters were trained or lacks
// one of their layers, and kBadInput if another process is writing to `out`. Throws kIo if a file
// cannot be read or written. Precondition: the checkpoint is complete.
void MergeAdapters(const Checkpoint& checkpoint, const AdapterRecord& record,
                   const ModelConfig& model, std::optional<at::ScalarType> dtype,
                   const std::string& out);

}  // namespace dslaunch
