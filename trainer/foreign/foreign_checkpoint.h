// Checkpoints of other programs as plans: a plan maps the elements of each tensor to bytes of
// files. Planning reads names and positions only; tensors are read when they are needed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

enum class ForeignKind {
  kDeepSpeed,    // ZeRO 0 to 3: *_model_states.pt and *_optim_states.pt
  kUniversal,    // DeepSpeed's universal form: zero/NAME/fp32.pt
  kDistributed,  // torch.distributed.checkpoint: .metadata and *.distcp
  kStateDict,    // a dict of tensors by torch.save or safetensors, or the files of an index
};

// Where the elements of a slice are: its first element is at byte `begin` of the file. With
// strides, the slice is a whole tensor of the record's shape, with gaps between its elements;
// without strides, the elements follow one another in the slice's order.
struct BytesInFile {
  std::string path;
  uint64_t begin = 0;
  std::vector<int64_t> stride;
};

struct ForeignCheckpoint {
  ForeignKind kind = ForeignKind::kStateDict;
  // The manifest names the model's tensors as the program did, and optimizer state as ours:
  // "optimizer/exp_avg/NAME", "optimizer/exp_avg_sq/NAME", in fp32 where the checkpoint has it. A
  // slice's `file` is a key of `places`. Position, optimizer, updates, loss scale, learning rates,
  // world_size, zero_stage and dtype are set as far as the checkpoint has them; epoch and place in
  // the data are 0. `files` has names and sizes without sums.
  Checkpoint checkpoint;
  std::map<std::string, BytesInFile> places;
  std::string program;  // "DeepSpeed 0.19.8"; "PyTorch distributed checkpoint"
  // Other names of the manifest's tensors in the model, mapped to their names in the manifest:
  // {"lm_head.weight", "model.embed_tokens.weight"}.
  std::map<std::string, std::string> aliases;
  std::vector<std::string> notes;    // unread contents, one sentence each
  std::vector<std::string> missing;  // names of files that a complete checkpoint would have
};

// Returns the kind of the folder or file, by names only; nullopt for anything else. A folder that
// contains a checkpoint (DeepSpeed's `latest`, Trainer's checkpoint-N/global_stepN) counts as that
// checkpoint.
std::optional<ForeignKind> WhatIs(const std::string& path);

struct ForeignOptions {
  std::string key;  // kStateDict: the dict's key in the file, "state_dict"; empty: the file's root
  // Prefix that is dropped from names. kDistributed: weights are the keys with this prefix. Empty:
  // the prefix is detected and noted.
  std::string prefix;
};

// Plans the checkpoint at `path`. Throws kBadInput, naming the file and the key, for one that is
// damaged or of a kind that is refused (tensor parallel, experts, 1-bit optimizers, layer files of
// a pipeline), and kIo. Missing files of single ranks do not throw; they are in `missing`, and the
// tensors of which they hold a part are not in the manifest.
ForeignCheckpoint PlanForeign(const std::string& path, const ForeignOptions& options = {});

}  // namespace dslaunch
