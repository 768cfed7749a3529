// State dicts: files of torch.save or safetensors with a dict of tensors, alone or as the files of
// one index.
#pragma once

#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Whether `path` is a file of torch.save or a safetensors file, or a folder with pytorch_model.bin
// or model.safetensors or the index of either. Reads at most the first bytes of a file.
bool IsStateDict(const std::string& path);

// Plans the state dict at `path`; errors are those of PlanForeign. The dict at `options.key` has
// the tensors; other values in it are named in `notes`. "module." (DistributedDataParallel) and
// "_orig_mod." (torch.compile) are dropped if all names begin so. Files that an index names and
// that do not exist are in `missing`.
ForeignCheckpoint PlanStateDict(const std::string& path, const ForeignOptions& options);

}  // namespace dslaunch
