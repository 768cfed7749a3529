// Tensors of a run on their way into a checkpoint's files and back.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/rank_record.h"

namespace dslaunch {

// The name of rank 1's of 4 for "model": "model-00002-of-00004.safetensors". Of a world of one:
// "model.safetensors".
std::string RankFileName(const std::string& kind, int rank, int world_size);

// What `rank` writes of `state`, as views: its own parts of what is spread over the ranks, its
// share of what all hold (write_plan.h), and as rank 0 what only its values count of. A tensor
// without elements is among everybody's.
std::vector<TensorPart> OwnParts(const std::vector<TensorPart>& state, int rank, int world_size);

// Copies in the CPU's memory, which later steps do not change.
std::vector<TensorPart> Snapshot(std::vector<TensorPart> parts);

// Writes `parts` into one new file of a begun checkpoint, waits until it is on the disk, and enters
// both into `record`. A tensor that is there whole has its shape in the file, others are one row.
// No file where there are no elements. kIo.
void WriteParts(const std::string& folder, const std::string& file,
                const std::vector<TensorPart>& parts, RankRecord& record);

// Collective. Fills the tensors of `state`, each rank its parts, however many ranks wrote them and
// in which parts: only the bytes that are needed are read. Numbers of floating point are rounded to
// the dtype that `state` has, so that a run may go on in another precision. Throws on every rank,
// kBadInput naming the tensor, unless both hold the same names, shapes and, apart from that,
// dtypes; `state` is then partly filled.
void LoadState(const Checkpoint& checkpoint, const std::vector<TensorPart>& state,
               const ProcessGroup& group);

}  // namespace dslaunch
