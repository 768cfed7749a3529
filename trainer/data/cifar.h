// The binary version of CIFAR-10 and CIFAR-100: records of label bytes and a 3 x 32 x 32 image.
#pragma once

#include <string>

#include "trainer/data/labeled_images.h"

namespace dslaunch {

// Reads one half of a folder. CIFAR-10: data_batch_1.bin and those up to data_batch_5.bin that
// exist, or test_batch.bin. CIFAR-100: train.bin or test.bin, with the fine labels. Throws
// TrainError kBadInput or kIo, naming the file.
LabeledImages ReadCifarImages(const std::string& folder, Split split, int64_t num_classes);

}  // namespace dslaunch
