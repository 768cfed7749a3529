// Makes samples of tokens from conversations. Only the tokens of answers are targets.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.h"

namespace dslaunch {

// Opens data.type chat, with `block` tokens in a sample. Reads and encodes all lines once, so an
// invalid line is found here, and again by each Fetch of it; keeps 16 bytes of each line. A line
// that is longer than a sample is cut; a line without a target in its sample is left out. Throws
// the errors of OpenData.
DataSplits OpenChatData(const DataConfig& data, int64_t block, int64_t vocab_size);

}  // namespace dslaunch
