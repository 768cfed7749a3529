// Makes samples of tokens from conversations. Only tokens of answers are targets.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.h"

namespace dslaunch {

// Opens data of type chat, with `block` tokens in a sample. Reads and encodes every line once, so
// an invalid line is reported here, and again by each Fetch of it. Keeps 16 bytes of each line. A
// line longer than a sample is cut; a line without a target in its sample is left out. Throws the
// errors of OpenData.
DataSplits OpenChatData(const DataConfig& data, int64_t block, int64_t vocab_size);

}  // namespace dslaunch
