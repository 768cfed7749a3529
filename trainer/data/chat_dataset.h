// Makes samples of tokens from conversations, in which only tokens of answers are targets.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.h"

namespace dslaunch {

// Opens data of type chat, with `block` tokens in a sample. Reads and encodes every line once, so
// an invalid line is reported by this call, and again by each Fetch of the line. Keeps 16 bytes of
// each line. A line longer than a sample is truncated; a line without a target in its sample is
// omitted. Throws TrainError: kBadInput, naming the file, for invalid data, or kIo if a file cannot
// be read.
DataSplits OpenChatData(const DataConfig& data, int64_t block, int64_t vocab_size);

// Returns whether `data` is from OpenChatData, so that only tokens of answers are targets.
bool IsChatData(const Dataset& data);

}  // namespace dslaunch
