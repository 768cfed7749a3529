// Reads checkpoints of other programs as plans. A plan maps the elements of each tensor to bytes of
// files. Planning reads only names and positions; tensors are read when they are needed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

enum class ForeignKind {
  kDeepSpeed,    // ZeRO stages 0 to 3: *_model_states.pt and *_optim_states.pt
  kUniversal,    // DeepSpeed's universal format: zero/NAME/fp32.pt
  kDistributed,  // torch.distributed.checkpoint: .metadata and *.distcp
  kStateDict,    // dict of tensors, saved by torch.save or safetensors
};

// The location of a slice's elements in a file, beginning at byte `begin`. With strides, the slice
// is a whole tensor of the record's shape, with gaps between its elements. Without strides, the
// elements are contiguous and in the slice's order.
struct BytesInFile {
  std::string path;
  uint64_t begin = 0;
  std::vector<int64_t> stride;
};

struct ForeignCheckpoint {
  ForeignKind kind = ForeignKind::kStateDict;
  // The manifest has the model's tensors under the program's names, and optimizer state under
  // dslaunch's names: "optimizer/exp_avg/NAME", "optimizer/exp_avg_sq/NAME". Both are in fp32 if
  // the checkpoint has them in fp32. A slice's `file` is a key of `places`. Position, optimizer,
  // updates, loss scale, learning rates, world_size, zero_stage and dtype are set if the checkpoint
  // has them; epoch and position in the data are 0. `files` has names and sizes, but no checksums.
  Checkpoint checkpoint;
  std::map<std::string, BytesInFile> places;
  std::string program;  // program that saved the checkpoint, such as "DeepSpeed 0.19.8"
  // Maps other names of tensors in the model to their names in the manifest: {"lm_head.weight",
  // "model.embed_tokens.weight"}.
  std::map<std::string, std::string> aliases;
  std::vector<std::string> notes;    // a sentence about each kind of content that is not read
  std::vector<std::string> missing;  // names of files that the checkpoint lacks
};

// Returns the kind of the folder or file, determined by names only; nullopt if it is not a
// checkpoint. A folder that contains a checkpoint (DeepSpeed's `latest`, Trainer's
// checkpoint-N/global_stepN) counts as that checkpoint.
std::optional<ForeignKind> WhatIs(const std::string& path);

struct ForeignOptions {
  // Key of the dict of tensors in a file of kind kStateDict, such as "state_dict"; empty if the
  // dict is the file's root.
  std::string key;
  // Prefix that is removed from names. In a checkpoint of kind kDistributed, only keys with this
  // prefix are weights. If empty, the prefix is detected, and a note names it.
  std::string prefix;
};

// Plans the checkpoint at `path`. Throws kBadInput, naming the file and the key, if the checkpoint
// is damaged or of a kind that is not supported (tensor parallel, experts, 1-bit optimizers, layer
// files of a pipeline). Throws kIo if a file cannot be read. Missing files of some ranks are not an
// error: they are listed in `missing`, and the manifest omits tensors that have parts in them.
ForeignCheckpoint PlanForeign(const std::string& path, const ForeignOptions& options = {});

}  // namespace dslaunch
