// Implements dslaunch checkpoint convert and export.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

enum class ConvertKind {
  kSafetensors,  // weights for transformers
  kDslaunch,     // a folder of --checkpoint_dir with one checkpoint
  kUniversal,    // DeepSpeed's universal checkpoint
  kDistributed,  // torch.distributed.checkpoint
};

struct ConvertOptions {
  ConvertKind to = ConvertKind::kSafetensors;
  std::optional<at::ScalarType> dtype;  // dtype of the weights; nullopt: as saved
  bool force = false;                   // whether to overwrite existing files in OUT
  bool merge_lora = false;  // add adapters to the weights to which they belong, and write these
  ForeignOptions source;
};

// Converts the checkpoint at `path`, of any program, and prints what was written. Throws
// TrainError: kUsage for options that exclude each other or files that exist already, kBadInput for
// a checkpoint that is incomplete or damaged, kIo, with the bytes that are needed, for a full disk.
void Convert(const std::string& path, const std::string& out, const ConvertOptions& options);

}  // namespace dslaunch
