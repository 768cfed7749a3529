// Reads the binary version of CIFAR-10 and CIFAR-100, whose records have label bytes and a 3 x 32 x
// 32 image.
#pragma once

#include <string>

#include "trainer/data/labeled_images.h"

namespace dslaunch {

// Reads the training or the test images of a folder. For CIFAR-10, these are in the existing files
// among data_batch_1.bin to data_batch_5.bin, or in test_batch.bin. For CIFAR-100, they are in
// train.bin or test.bin, of which the fine labels are used. Throws TrainError, naming the file:
// kBadInput for invalid contents, kIo if the file cannot be read.
LabeledImages ReadCifarImages(const std::string& folder, Split split, int64_t num_classes);

}  // namespace dslaunch
