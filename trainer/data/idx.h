// Reads IDX files, the format of MNIST and Fashion-MNIST. Such a file has a big-endian header and
// unsigned bytes, plain or gzipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/labeled_images.h"

namespace dslaunch {

struct IdxArray {
  std::vector<int64_t> dims;   // sizes of the dimensions, each at least 1
  std::vector<uint8_t> bytes;  // elements in row-major order
};

// Reads a file of unsigned bytes with `num_dims` dimensions. The file is not trusted: memory is
// allocated only as bytes are read, not for the size in the header. Throws TrainError, naming the
// file: kBadInput for invalid contents, kIo if the file cannot be read.
IdxArray ReadIdx(const std::string& file, size_t num_dims);

// Reads the training or the test images of a folder with the names of MNIST's files:
// {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without .gz. The images have one
// channel. Throws TrainError, naming the file: kBadInput for invalid contents, kIo if a file cannot
// be read.
LabeledImages ReadIdxImages(const std::string& folder, Split split, int64_t num_classes);

}  // namespace dslaunch
