// Plans state dicts: files of torch.save or safetensors with a dict of tensors, either one file or
// the files of an index.
#pragma once

#include <string>
#include <vector>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Whether a folder with these names has model.safetensors, pytorch_model.bin or the index of
// either, or accelerate's pytorch_model_fsdp.bin.
bool IsStateDictFolder(const std::vector<std::string>& names);

// Whether the file is a state dict: it begins as an archive of torch.save, or has the name of a
// safetensors file or of a pickle (.bin, .pt, .pth, .ckpt). For the latter PlanStateDict reports
// what is wrong.
bool IsStateDictFile(const std::string& path);

// Plans the state dict at `path`, which is a file or a folder as above. Throws the errors of
// PlanForeign. The tensors are in the dict at `key`; its other values are named in `notes`. If
// several keys name a tensor with the same elements, all but the first are aliases. `missing` lists
// files that the index names but that do not exist.
ForeignCheckpoint PlanStateDict(const std::string& path, const std::string& key);

}  // namespace dslaunch
