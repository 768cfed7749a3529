// Checkpoints of torch.distributed.checkpoint (DCP), as FSDP2, torchtitan and accelerate save them:
// `.metadata`, a pickle of protocol 4, names each tensor's chunks with file, offset and length; at
// each of these places in the files *.distcp is a whole archive of torch.save with one tensor.
#pragma once

#include <string>
#include <vector>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Returns the folders with the parts of the checkpoint at `path`: `path` itself, if it has
// `.metadata` or *.distcp; else those that accelerate writes, with weights and optimizer state
// (pytorch_model_fsdp_0, optimizer_0). Empty if it is no such checkpoint. Reads names only.
std::vector<std::string> DistributedFolders(const std::string& path);

// Plans the checkpoint at `path`; errors are those of PlanForeign. The optimizer's state is that at
// "optim.state.NAME.KIND" or "optimizer.state.NAME.KIND". Weights are the tensors at `prefix`; if
// that is empty, at the one of "", "model" and "app.model" that has them. Others are in `notes`.
ForeignCheckpoint PlanDistributed(const std::string& path, const ForeignOptions& options);

}  // namespace dslaunch
