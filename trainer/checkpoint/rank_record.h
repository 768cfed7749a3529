// What each rank has put into a checkpoint, on its way to rank 0, which makes one manifest of all.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/comm/rank_failure.h"

namespace dslaunch {

// Of one rank.
struct RankRecord {
  std::vector<FileRecord> files;
  // With the slices that this rank has written, which are not the whole tensor; a tensor without
  // elements has none.
  std::vector<TensorRecord> tensors;
};

// A record as text that another rank of this program can read.
std::string FormatRecord(const RankRecord& record);
// `text` is FormatRecord's, or FormatFailure's (trainer/comm/rank_failure.h), which is thrown as
// the failure of `rank`.
RankRecord ParseRecord(const std::string& text, int rank);

// Enters the records of all ranks, by rank. Tensors come in the order in which ranks first name
// them. kInternal, naming the tensor, where slices are missing or overlap, or two ranks differ on
// dtype or shape.
void EnterRecords(const std::vector<RankRecord>& ranks, Manifest& manifest);

}  // namespace dslaunch
