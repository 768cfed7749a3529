// What each rank has put into a checkpoint, on its way to rank 0, which makes one manifest of all.
// Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/train_error.h"

namespace dslaunch {

// Of one rank.
struct RankRecord {
  std::vector<FileRecord> files;
  // With the slices that this rank has written, which are not the whole tensor; a tensor without
  // elements has none.
  std::vector<TensorRecord> tensors;
};

// A record, or why there is none, as text that another rank of this program can read.
std::string FormatRecord(const RankRecord& record);
std::string FormatFailure(const TrainError& failure);
// Empty, or FormatFailure of what `action` throws: where other ranks wait for this one's answer.
std::string FailureOf(const std::function<void()>& action);
// What FormatFailure was given is thrown again, as that of `rank`.
RankRecord ParseRecord(const std::string& text, int rank);

// `failures` has an entry for each rank: empty, or what FormatFailure gave. Throws the first
// failure where there is one, naming its rank unless all ranks say the same.
void ThrowFirstFailure(const std::vector<std::string>& failures);

// Enters the records of all ranks, by rank. Tensors come in the order in which ranks first name
// them. kInternal, naming the tensor, where slices are missing or overlap, or two ranks differ on
// dtype or shape.
void EnterRecords(const std::vector<RankRecord>& ranks, Manifest& manifest);

}  // namespace dslaunch
