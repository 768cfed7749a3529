// Implements the commands dslaunch checkpoint convert and export.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

enum class ConvertKind {
  kSafetensors,  // weights for the transformers package
  kDslaunch,     // folder with one checkpoint, to be used as --checkpoint_dir
  kUniversal,    // universal checkpoint of DeepSpeed
  kDistributed,  // checkpoint of torch.distributed.checkpoint
};

struct ConvertOptions {
  ConvertKind to = ConvertKind::kSafetensors;
  std::optional<at::ScalarType> dtype;  // dtype of the written weights; nullopt: as saved
  bool force = false;                   // true to overwrite existing files in the output folder
  bool merge_lora = false;  // true to write the base weights with the adapters added to them
  ForeignOptions source;
};

// Converts the checkpoint at `path`, of any program, and prints what was written. Throws
// TrainError: kUsage for options that exclude each other or for files that exist already, kBadInput
// for a checkpoint that is incomplete or damaged, and kIo for a full disk, with the number of bytes
// that are needed.
void Convert(const std::string& path, const std::string& out, const ConvertOptions& options);

}  // namespace dslaunch
