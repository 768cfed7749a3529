// Reads checkpoints of torch.distributed.checkpoint (DCP), which FSDP2, torchtitan and accelerate
// save. The file `.metadata`, a pickle of protocol 4, has the file, offset and length of each
// tensor's chunks. Each chunk in the files *.distcp is a whole archive of torch.save with one
// tensor.
#pragma once

#include <string>
#include <vector>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Returns whether a folder whose entries are `names` is a distributed checkpoint: it contains
// `.metadata`, *.distcp, or the folder in which accelerate saves a model (pytorch_model_fsdp_0,
// with optimizer_0 beside it).
bool IsDistributedFolder(const std::vector<std::string>& names);

// Returns the plan of the distributed checkpoint in `folder`: the positions of its tensors in the
// files (foreign_checkpoint.h). Weights are the tensors whose key begins with `prefix`. If `prefix`
// is empty, weights are the tensors in the dict "model", in "model" within "app", or in no dict,
// whichever of these is the first that has tensors. The optimizer's state is at
// "optim.state.NAME.KIND" or "optimizer.state.NAME.KIND". All other contents are listed in the
// plan's `notes`. Throws kBadInput if the checkpoint is damaged or not supported, and kIo if a file
// cannot be read.
ForeignCheckpoint PlanDistributed(const std::string& folder, const std::string& prefix);

}  // namespace dslaunch
