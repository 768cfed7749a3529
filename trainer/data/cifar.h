// Reads the binary version of CIFAR-10 and CIFAR-100: records of label bytes and a 3 x 32 x 32
// image.
#pragma once

#include <string>

#include "trainer/data/labeled_images.h"

namespace dslaunch {

// Reads the training or the test half of a folder. CIFAR-10: those of data_batch_1.bin to
// data_batch_5.bin that exist, or test_batch.bin. CIFAR-100: train.bin or test.bin, with the fine
// labels. Throws TrainError, naming the file: kBadInput for invalid contents, kIo if it cannot be
// read.
LabeledImages ReadCifarImages(const std::string& folder, Split split, int64_t num_classes);

}  // namespace dslaunch
