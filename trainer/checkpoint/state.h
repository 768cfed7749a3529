// The tensors of a run, for the files of a checkpoint and from them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/rank_record.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

// Prefixes of the names of tensors that are not the model's.
inline constexpr char kOptimizerPrefix[] = "optimizer/";
inline constexpr char kGeneratorPrefix[] = "generator/cpu/";
inline constexpr char kRankPrefix[] = "rank_state/";

// What one rank writes into one file.
struct StateFile {
  std::string name;  // "model-00002-of-00004.safetensors"; of an only one "model.safetensors"
  std::vector<TensorPart> parts;  // none: no file
};

// What `rank` writes of `state`, as views: its parts of tensors that are divided among the ranks,
// its share of those that all ranks hold (write_plan.h), and on rank 0 those of which only its
// values count. Nothing that other stages save. All ranks have a tensor without elements. Ranks are
// those of one stage. The file's name begins with `kind`, which differs between stages.
StateFile OwnFile(const std::string& kind, const std::vector<TensorPart>& state, int rank,
                  int world_size);

// Copies in CPU memory, which later steps do not change.
std::vector<TensorPart> Snapshot(std::vector<TensorPart> parts);

// `parts` with copies of what lies on a device, which are in pinned memory; the rest as it is.
std::vector<TensorPart> OnHost(std::vector<TensorPart> parts);

// Writes a new file of a begun checkpoint, waits until it is on the disk, and enters it into
// `record`. A whole tensor has its shape in the file, a part of one is one row. Without elements
// there is no file. kIo.
void WriteFile(const std::string& folder, const StateFile& file, RankRecord& record);

// The tensors of a checkpoint, in whatever files they are. Files that were read stay open. Verify
// the checkpoint before: this checks headers, but no checksums. `checkpoint` must outlive this.
class StoredTensors {
 public:
  explicit StoredTensors(const Checkpoint& checkpoint);

  // Fills `part`, reading only the bytes that it needs; floating-point numbers are rounded to its
  // dtype. Returns its index in the manifest's tensors. Throws kBadInput, naming the tensor, if it
  // is missing or has another shape or kind of numbers.
  size_t Fill(const TensorPart& part);
  // A whole tensor of the manifest, as it was saved.
  at::Tensor ReadWhole(const TensorRecord& tensor);

 private:
  [[noreturn]] void Fail(const std::string& problem) const;
  // Fills `out`, which is contiguous and has the record's dtype, with the elements of `shard`.
  void Read(const TensorRecord& record, const Shard& shard, const at::Tensor& out);
  const SafetensorsFile& File(const std::string& name);

  const Checkpoint& checkpoint_;
  const CheckpointSlices slices_;
  std::map<std::string, size_t> places_;
  std::map<std::string, SafetensorsFile> files_;
};

// Whether the tensor is a weight or a buffer of the model.
bool IsOfModel(const TensorRecord& tensor);

// Collective. Fills the tensors of `state`, on each rank its parts, whatever the number of ranks
// that wrote them. Reads only the bytes that are needed. Floating-point numbers are rounded to the
// dtypes of `state`, so a run can continue in another precision. `replica`: this rank's number
// among those that hold the same replicated tensors. Throws kBadInput on every rank, naming the
// tensor, if the names, the shapes or, except for rounding, the dtypes differ; `state` is then
// partly filled.
void LoadState(const Checkpoint& checkpoint, const std::vector<TensorPart>& state,
               const ProcessGroup& group, int replica);

}  // namespace dslaunch
