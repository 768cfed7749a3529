#include "trainer/parallel/zero/file_tensors.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "trainer/base/format.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

TrainError FolderError(ExitCode code, const std::string& folder, const std::string& problem) {
  return {code, "nvme_path " + folder + ": " + problem};
}

// Returns a new file without a name, or an invalid descriptor with errno set if it cannot be
// created in `folder`.
UniqueFd NamelessFile(const std::string& folder) {
  UniqueFd file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  // Some file systems, such as NFS, do not support O_TMPFILE, so a named file is created and
  // unlinked.
  std::string path = folder + "/dslaunch_XXXXXX";
  file.Reset(mkostemp(path.data(), O_CLOEXEC));
  if (file) unlink(path.c_str());
  return file;
}

}  // namespace

FileTensors::FileTensors(std::string folder) : folder_(std::move(folder)) {
  if (!NamelessFile(folder_)) {
    throw FolderError(ExitCode::kBadInput, folder_,
                      std::string("takes no files: ") + std::strerror(errno) +
                          "; give a folder on a disk of the node that you may write to");
  }
}

at::Tensor FileTensors::Zeros(at::IntArrayRef sizes, at::ScalarType dtype) const {
  const int64_t bytes = c10::multiply_integers(sizes) * c10::elementSize(dtype);
  const auto options = at::TensorOptions().dtype(dtype);
  if (bytes == 0) return at::zeros(sizes, options);
  const UniqueFd file = NamelessFile(folder_);
  // Reserves the space now, because a write to a mapped page on a full disk would end the process
  // by SIGBUS.
  const int error = file ? posix_fallocate(file.get(), 0, bytes) : errno;
  if (error != 0) {
    struct statfs space = {};
    statfs(folder_.c_str(), &space);
    throw FolderError(ExitCode::kIo, folder_,
                      BytesText(bytes) + " more are needed, but " +
                          BytesText(static_cast<int64_t>(space.f_bavail) * space.f_bsize) +
                          " are free (" + std::strerror(error) +
                          "); free some, or give another folder");
  }
  const auto length = static_cast<size_t>(bytes);
  void* const start = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (start == MAP_FAILED) {
    throw FolderError(ExitCode::kIo, folder_,
                      std::string("a file cannot be mapped: ") + std::strerror(errno));
  }
  // An update reads a tensor from one end to the other, so the kernel may read ahead and drop pages
  // that were read.
  madvise(start, length, MADV_SEQUENTIAL);
  return at::from_blob(
      start, sizes, [length](void* memory) { munmap(memory, length); }, options);
}

}  // namespace dslaunch
