// Describes the files that a rank has written for a checkpoint. Rank 0 combines all records into
// one manifest. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/comm/rank_failure.h"

namespace dslaunch {

struct RankRecord {
  std::vector<FileRecord> files;
  // Tensors, each with only the slices that this rank has written. A tensor without elements has no
  // slices.
  std::vector<TensorRecord> tensors;
};

// Returns a record as text for another rank of this program.
std::string FormatRecord(const RankRecord& record);
// Parses the text of FormatRecord. Throws the failure of `rank` if `text` is the text of a failure
// (FormatFailure in trainer/comm/rank_failure.h). Throws kInternal, naming `rank`, for any other
// text.
RankRecord ParseRecord(const std::string& text, int rank);

// Adds the files and tensors of all ranks, ordered by rank, to the manifest. Tensors are in the
// order in which they first occur in the records. Throws kInternal, naming the tensor, if slices
// are missing or overlap, or if two ranks differ on dtype or shape.
void EnterRecords(const std::vector<RankRecord>& ranks, Manifest& manifest);

}  // namespace dslaunch
