// Tensors of a run on their way into a checkpoint's files and back.
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

// How the names of what is not the model's own begin.
inline constexpr char kOptimizerPrefix[] = "optimizer/";
inline constexpr char kGeneratorPrefix[] = "generator/cpu/";

// What one rank writes into one file.
struct StateFile {
  std::string name;  // "model-00002-of-00004.safetensors"; of an only one "model.safetensors"
  std::vector<TensorPart> parts;  // none: no file
};

// What `rank` writes of `state`, as views: its own parts of what is spread over the ranks, its
// share of what all hold (write_plan.h), and as rank 0 what only its values count of; nothing of
// what other stages save. A tensor without elements is among everybody's. Ranks are those of one
// stage. `kind` is what the name begins with: another one on each stage.
StateFile OwnFile(const std::string& kind, const std::vector<TensorPart>& state, int rank,
                  int world_size);

// Copies in the CPU's memory, which later steps do not change.
std::vector<TensorPart> Snapshot(std::vector<TensorPart> parts);

// Writes a new file of a begun checkpoint, waits until it is on the disk, and enters it into
// `record`. A tensor that is there whole has its shape in the file, others are one row. No file
// where there are no elements. kIo.
void WriteFile(const std::string& folder, const StateFile& file, RankRecord& record);

// A checkpoint's tensors, in whatever files they are; those that are asked for stay open. Nothing
// is known of their content: verify it before. `checkpoint` must outlive this.
class StoredTensors {
 public:
  explicit StoredTensors(const Checkpoint& checkpoint);

  // Fills `part` from the bytes that it needs, rounding numbers of floating point to its dtype.
  // Returns its place among the manifest's tensors. Throws kBadInput, naming the tensor, for one
  // that is not there or has another shape or kind of numbers.
  size_t Fill(const TensorPart& part);
  // All of one of the manifest's tensors as it was saved.
  at::Tensor ReadWhole(const TensorRecord& tensor);

 private:
  [[noreturn]] void Fail(const std::string& problem) const;
  // Elements from `start` on into all of `out`, which is contiguous and has the record's dtype.
  void Read(const TensorRecord& record, int64_t start, const at::Tensor& out);
  const SafetensorsFile& File(const std::string& name);

  const Checkpoint& checkpoint_;
  std::map<std::string, size_t> places_;
  std::map<std::string, SafetensorsFile> files_;
};

// Whether it belongs to the model: a weight or a buffer.
bool IsOfModel(const TensorRecord& tensor);

// Collective. Fills the tensors of `state`, each rank its parts, however many ranks wrote them and
// in which parts: only the bytes that are needed are read. Numbers of floating point are rounded to
// the dtype that `state` has, so that a run may go on in another precision. `replica`: this rank's
// place among those that hold the same replicated tensors. Throws on every rank, kBadInput naming
// the tensor, unless checkpoint and ranks hold the same names, shapes and, apart from that, dtypes;
// `state` is then partly filled.
void LoadState(const Checkpoint& checkpoint, const std::vector<TensorPart>& state,
               const ProcessGroup& group, int replica);

}  // namespace dslaunch
