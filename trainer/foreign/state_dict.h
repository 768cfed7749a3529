// Plans state dicts, which are dicts of tensors that torch.save or safetensors has saved, either as
// one file or as the files of an index.
#pragma once

#include <string>
#include <vector>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Returns whether a folder whose entries are `names` has model.safetensors, pytorch_model.bin, an
// index of one of these, or accelerate's pytorch_model_fsdp.bin.
bool IsStateDictFolder(const std::vector<std::string>& names);

// Returns whether the file is a state dict: it begins like an archive of torch.save, or has the
// name of a safetensors file or of a pickle (.bin, .pt, .pth, .ckpt). If only the name matches,
// PlanStateDict reports the error.
bool IsStateDictFile(const std::string& path);

// Returns the plan of the state dict at `path`, a file or a folder that IsStateDictFile or
// IsStateDictFolder accepts. Tensors are read from the dict at `key`, or from the root if `key` is
// empty; the other values of that dict are named in the plan's `notes`. If several keys name
// tensors with the same elements, all but the first are aliases. The plan's `missing` lists files
// that the index names but that do not exist. Throws kBadInput if the state dict is damaged or not
// supported, and kIo if a file cannot be read.
ForeignCheckpoint PlanStateDict(const std::string& path, const std::string& key);

}  // namespace dslaunch
