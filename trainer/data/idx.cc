#include "trainer/data/idx.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "trainer/base/train_error.h"
#include "trainer/data/data_file.h"

namespace dslaunch {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{16} << 30;
constexpr size_t kChunkBytes = 1 << 20;
constexpr int kUnsignedByte = 0x08;

// Reads a plain or gzipped file from beginning to end.
class GzReader {
 public:
  explicit GzReader(const std::string& file)
      : file_(file), gz_(gzopen(file.c_str(), "rbe"), &gzclose) {
    if (!gz_) {
      throw TrainError(ExitCode::kIo, file + ": cannot be opened: " + std::strerror(errno));
    }
    gzbuffer(gz_.get(), 1 << 17);
  }

  // Reads up to `size` bytes and returns their number, which is less than `size` only at the end of
  // the file. Throws kIo if the file cannot be read, and kBadInput if its compressed data is
  // damaged.
  size_t Read(void* out, size_t size) {
    errno = 0;
    const int got = gzread(gz_.get(), out, static_cast<unsigned>(size));
    int status = Z_OK;
    const char* message = gzerror(gz_.get(), &status);
    if (status == Z_ERRNO) {
      throw TrainError(ExitCode::kIo, file_ + ": cannot be read: " + std::strerror(errno));
    }
    if (status == Z_BUF_ERROR)
      RefuseDataFile(file_, "the compressed data ends too early; fetch the file again");
    if (got < 0)
      RefuseDataFile(
          file_, std::string("damaged compressed data (") + message + "); fetch the file again");
    return static_cast<size_t>(got);
  }

 private:
  std::string file_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> gz_;
};

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

std::string FindFile(const std::string& folder, const std::string& name) {
  struct stat info;
  const bool exists = stat(folder.c_str(), &info) == 0;
  RefuseFileForFolder(folder, "idx");
  if (!exists) {
    throw TrainError(
        ExitCode::kBadInput,
        "the data folder " + folder +
            " does not exist; set data.path, or on Debian: apt-get install dataset-fashion-mnist");
  }
  for (const char* ending : {".gz", ""}) {
    const std::string file = folder + "/" + name + ending;
    if (stat(file.c_str(), &info) == 0) return file;
  }
  throw TrainError(ExitCode::kBadInput,
                   folder + ": has neither " + name + ".gz nor " + name +
                       "; set data.path to a folder that holds the four IDX files, or data.type to "
                       "image_folder for folders of PNG or JPEG files by class");
}

}  // namespace

IdxArray ReadIdx(const std::string& file, size_t num_dims) {
  GzReader reader(file);
  std::vector<uint8_t> header(4 + 4 * num_dims);
  const size_t got = reader.Read(header.data(), header.size());
  if (got < 4 || header[0] != 0 || header[1] != 0)
    RefuseDataFile(file, "not an IDX file (wrong first bytes)");
  if (header[2] != kUnsignedByte || header[3] != num_dims) {
    RefuseDataFile(file, "an IDX file of type " + std::to_string(header[2]) + " with " +
                             std::to_string(header[3]) +
                             " dimensions; unsigned bytes (type 8) with " +
                             std::to_string(num_dims) + " dimensions are required");
  }
  if (got < header.size()) RefuseDataFile(file, "ends inside its header; fetch the file again");

  IdxArray array;
  uint64_t size = 1;
  for (size_t i = 0; i < num_dims; ++i) {
    const uint32_t dim = BigEndian(&header[4 + 4 * i]);
    if (dim == 0) RefuseDataFile(file, "dimension " + std::to_string(i) + " is 0");
    if (dim > kMaxBytes / size)
      RefuseDataFile(file, "its header declares more than 16 GiB; it is damaged");
    size *= dim;
    array.dims.push_back(dim);
  }
  while (array.bytes.size() < size) {
    const size_t start = array.bytes.size();
    const size_t want = std::min<uint64_t>(kChunkBytes, size - start);
    array.bytes.resize(start + want);
    const size_t read = reader.Read(&array.bytes[start], want);
    if (read < want) {
      RefuseDataFile(file, "holds " + std::to_string(start + read) +
                               " bytes, but its header declares " + std::to_string(size) +
                               "; fetch the file again");
    }
  }
  uint8_t extra;
  if (reader.Read(&extra, 1) != 0) {
    RefuseDataFile(
        file, "has data after the " + std::to_string(size) + " bytes that its header declares");
  }
  return array;
}

LabeledImages ReadIdxImages(const std::string& folder, Split split, int64_t num_classes) {
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const std::string images_file = FindFile(folder, prefix + "-images-idx3-ubyte");
  const std::string labels_file = FindFile(folder, prefix + "-labels-idx1-ubyte");
  IdxArray images = ReadIdx(images_file, 3);
  IdxArray labels = ReadIdx(labels_file, 1);
  if (labels.dims[0] != images.dims[0]) {
    RefuseDataFile(labels_file, "has " + std::to_string(labels.dims[0]) + " labels for the " +
                                    std::to_string(images.dims[0]) + " images of " + images_file);
  }
  CheckLabels(labels_file, labels.bytes, num_classes);
  return {{images.dims[0], 1, images.dims[1], images.dims[2]},
          std::move(images.bytes),
          std::move(labels.bytes)};
}

}  // namespace dslaunch
