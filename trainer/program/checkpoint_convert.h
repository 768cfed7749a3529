// Implements the commands `dslaunch checkpoint convert` and `dslaunch checkpoint export`.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

enum class ConvertKind {
  kSafetensors,  // weights for the transformers package
  kDslaunch,     // folder that can be used as --checkpoint_dir, with one checkpoint
  kUniversal,    // universal checkpoint of DeepSpeed
  kDistributed,  // checkpoint of torch.distributed.checkpoint
};

struct ConvertOptions {
  ConvertKind to = ConvertKind::kSafetensors;
  // The dtype of the written weights; nullopt if it is not changed.
  std::optional<at::ScalarType> dtype;
  bool force = false;       // true to overwrite existing files in the output folder
  bool merge_lora = false;  // true to merge the adapters into the base weights
  ForeignOptions source;
};

// Converts the checkpoint at `path`, of any program, and prints what was written. Throws
// TrainError: kUsage for options that exclude each other or for files that exist already, kBadInput
// for a checkpoint that is incomplete or damaged, and kIo, with the number of bytes that are
// needed, for a full disk.
void Convert(const std::string& path, const std::string& out, const ConvertOptions& options);

}  // namespace dslaunch
