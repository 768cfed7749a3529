// Conversations as samples of tokens, of which only the answers have targets.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.h"

namespace dslaunch {

// Opens data.type chat, `block` tokens a sample. All lines are read and encoded once, so a wrong
// one is found here, and again by each Fetch; 16 bytes of each are kept. A line that is longer than
// a sample is cut; a line without a target in its sample is left out. Throws as OpenData does.
DataSplits OpenChatData(const DataConfig& data, int64_t block, int64_t vocab_size);

}  // namespace dslaunch
