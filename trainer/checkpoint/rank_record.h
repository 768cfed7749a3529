// What each rank has written of a checkpoint. Rank 0 makes one manifest of all records. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/comm/rank_failure.h"

namespace dslaunch {

// Of one rank.
struct RankRecord {
  std::vector<FileRecord> files;
  // Each with the slices that this rank has written; a tensor without elements has none.
  std::vector<TensorRecord> tensors;
};

// A record as text that another rank of this program can read.
std::string FormatRecord(const RankRecord& record);
// The reverse. Throws the failure of `rank` if `text` is one (FormatFailure in
// trainer/comm/rank_failure.h), and kInternal, naming `rank`, if it is neither.
RankRecord ParseRecord(const std::string& text, int rank);

// Enters the records of all ranks, by rank. Tensors are in the order in which ranks first name
// them. kInternal, naming the tensor, if slices are missing or overlap, or if two ranks differ on
// dtype or shape.
void EnterRecords(const std::vector<RankRecord>& ranks, Manifest& manifest);

}  // namespace dslaunch
