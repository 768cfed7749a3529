// Reads the tensors of another program's checkpoint from the positions in its files.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "trainer/base/input_file.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Reads the files that the `places` of a ForeignCheckpoint name. Reads only the requested bytes and
// short gaps between them. Holds at most 1 MiB of a file in memory, and keeps at most kMaxOpenFiles
// files open. Throws kBadInput, naming file and tensor, if a file has become too short for a slice,
// and kInternal for a slice without a place.
class ForeignReader : public SliceReader {
 public:
  static constexpr size_t kMaxOpenFiles = 16;

  explicit ForeignReader(std::map<std::string, BytesInFile> places) : places_(std::move(places)) {}
  void Read(const TensorRecord& tensor, const TensorSlice& stored, const Shard& wanted,
            void* out) const override;

 private:
  const InputFile& File(const std::string& path) const;

  std::map<std::string, BytesInFile> places_;
  mutable std::list<InputFile> open_;  // open files, most recently used first
};

// Returns the checkpoint of a plan, with a reader of the plan's files.
Checkpoint WithReader(ForeignCheckpoint plan);

}  // namespace dslaunch
