// Writes the tensors of a run into the files of a checkpoint, and reads tensors from a checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/rank_record.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/write_plan.h"

namespace dslaunch {

// A file that a rank writes, with its tensors.
struct StateFile {
  std::string name;               // name of the file, such as "model-00002-of-00004.safetensors"
  std::vector<TensorPart> parts;  // parts of tensors in the file; if empty, no file is written
};

// Returns views of the tensors of `state` that `rank` writes: its parts of tensors that are divided
// among the ranks, its share of tensors that all ranks hold (write_plan.h), and on rank 0 the
// tensors of which only rank 0's values are saved. Tensors that other stages save are omitted. A
// tensor without elements is in the result of all ranks. `rank` is the rank within the stage. The
// file's name begins with `kind`, which must differ between stages.
StateFile OwnFile(const std::string& kind, const std::vector<TensorPart>& state, int rank,
                  int world_size, int64_t min_share_bytes = kMinShareBytes);

// Returns copies of `parts` in CPU memory, which later training steps do not change.
std::vector<TensorPart> Snapshot(std::vector<TensorPart> parts);

// Returns `parts` with tensors on a device replaced by copies in pinned memory.
std::vector<TensorPart> OnHost(std::vector<TensorPart> parts);

// Writes a new file of a begun checkpoint, waits until it is on the disk, and adds it to `record`.
// A whole tensor keeps its shape in the file; a part is saved in one dimension. Writes no file if
// no part has elements. Throws kIo if the file cannot be written.
void WriteFile(const std::string& folder, const StateFile& file, RankRecord& record);

// Reads the tensors of a checkpoint with the checkpoint's reader, or from its safetensors files,
// which stay open. Checks headers but not checksums, so verify the checkpoint first. `checkpoint`
// must outlive this object.
class StoredTensors {
 public:
  explicit StoredTensors(const Checkpoint& checkpoint);

  // Fills `part`, reading only the files and bytes that it needs. Rounds floating-point numbers to
  // the part's dtype. Returns the index of the tensor in the manifest. Throws kBadInput, naming the
  // tensor, if the tensor is missing or has another shape or kind of numbers.
  size_t Fill(const TensorPart& part);
  // Returns a whole tensor of the manifest, in the dtype in which it was saved.
  at::Tensor ReadWhole(const TensorRecord& tensor);
  // Reads the elements `shard` of a tensor of the manifest into `out`, which has room for them in
  // the saved dtype. LibTorch need not support that dtype. Slice(Shard::Whole(n), a, b) is the
  // block of elements [a, b).
  void Read(const TensorRecord& tensor, const Shard& shard, void* out);

 private:
  [[noreturn]] void Fail(const std::string& problem) const;
  // Fills `out`, which is contiguous and has the record's dtype, with the elements of `shard`.
  void ReadInto(const at::Tensor& out, const TensorRecord& record, const Shard& shard);
  const SafetensorsFile& File(const std::string& name);

  const Checkpoint& checkpoint_;
  const CheckpointSlices slices_;
  std::map<std::string, size_t> places_;
  std::map<std::string, SafetensorsFile> files_;
};

// Fills this rank's parts of the tensors of `state` from files of any number of ranks. Collective.
// Reads only the needed bytes. Floating-point numbers are rounded to the dtypes of `state`, so a
// run can continue in another precision. `replica` is this rank's index among the ranks that hold
// the same replicated tensors. Throws kBadInput on every rank, naming the tensor, if the names, the
// shapes or, except for rounding, the dtypes differ; `state` is then partly filled.
void LoadState(const Checkpoint& checkpoint, const std::vector<TensorPart>& state,
               const ProcessGroup& group, int replica);

}  // namespace dslaunch
