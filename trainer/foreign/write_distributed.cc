#include "trainer/foreign/write_distributed.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/torch_archive_writer.h"
#include "trainer/foreign/distributed_metadata.h"

namespace dslaunch {
namespace {

constexpr char kDataFile[] = "__0_0.distcp";
// Name of an archive that torch.save writes without a file name.
constexpr char kArchive[] = "archive";
// Readers hold a whole block in memory, so larger tensors are divided along the first dimension.
constexpr int64_t kBlockBytes = int64_t{64} << 20;
constexpr char kAdamState[] = "exp_avg_sq";

class DistributedWriter {
 public:
  using Progress = std::function<void(uint64_t done, uint64_t all)>;
  // Reads the elements [start, stop) of a tensor into `out`, in row-major order.
  using Source = std::function<void(int64_t start, int64_t stop, void* out)>;

  DistributedWriter(const std::string& out, uint64_t all_bytes, const Progress& progress)
      : out_(MadeFolder(out)),
        file_(out_ + "/" + kDataFile),
        all_bytes_(all_bytes),
        progress_(progress) {
    metadata_.files = {kDataFile};
  }

  // Writes a tensor. `path` is the keys of the nested dicts that lead to the tensor.
  void Write(std::vector<std::string> path, const std::string& dtype,
             const std::vector<int64_t>& shape, const Source& source) {
    DistributedTensor tensor;
    for (const std::string& key : path) tensor.key += (tensor.key.empty() ? "" : ".") + key;
    tensor.path = std::move(path);
    tensor.dtype = dtype;
    tensor.shape = shape;
    const int64_t elements = NumElements(shape).value();
    const auto width = static_cast<int64_t>(DtypeBytes(dtype).value());
    const bool is_cut = elements * width > kBlockBytes;
    const int64_t rows = is_cut ? shape[0] : 1, row = elements / rows;
    const int64_t block_rows =
        std::max<int64_t>(kBlockBytes / std::max<int64_t>(row * width, 1), 1);
    for (int64_t begin = 0; begin < rows; begin += block_rows) {
      const int64_t end = std::min(begin + block_rows, rows);
      TensorBlock block = {std::vector<int64_t>(shape.size(), 0), shape};
      if (is_cut) {
        block.offsets[0] = begin;
        block.sizes[0] = end - begin;
      }
      tensor.places.push_back(WriteBlock(dtype, block.sizes, begin * row, end * row, source));
      tensor.blocks.push_back(std::move(block));
    }
    metadata_.tensors.push_back(std::move(tensor));
  }

  // Completes the folder. The file .metadata makes the folder a checkpoint, so it is written last.
  void Finish() {
    file_.Finish();
    WriteNewFile(out_ + "/" + kDistributedMetadataFile, FormatDistributedMetadata(metadata_));
    SyncFolder(out_);
  }

 private:
  static const std::string& MadeFolder(const std::string& out) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::absolute(out).parent_path(), error);
    if (!std::filesystem::create_directory(out, error)) {
      throw TrainError(ExitCode::kIo,
                       out + ": cannot be made: " + (error ? error.message() : "it exists"));
    }
    return out;
  }

  // Writes the elements [start, stop) of a tensor as an archive that contains a tensor of `shape`.
  ArchivePlace WriteBlock(const std::string& dtype, const std::vector<int64_t>& shape,
                          int64_t start, int64_t stop, const Source& source) {
    ArchivedObject object;
    object.Tensor(dtype, shape);
    TorchArchiveWriter archive(file_, kArchive, std::move(object));
    const auto width = static_cast<int64_t>(DtypeBytes(dtype).value());
    for (int64_t begin = start; begin < stop;) {
      const int64_t end = std::min(begin + kBlockBytes / width, stop);
      buffer_.resize(static_cast<size_t>((end - begin) * width));
      source(begin, end, buffer_.data());
      archive.Write(buffer_.data(), buffer_.size());
      done_bytes_ += buffer_.size();
      progress_(done_bytes_, all_bytes_);
      begin = end;
    }
    const ArchivePlace place = {0, file_bytes_, archive.Finish()};
    file_bytes_ += place.bytes;
    return place;
  }

  const std::string out_;
  NewFile file_;
  uint64_t file_bytes_ = 0;
  const uint64_t all_bytes_;
  uint64_t done_bytes_ = 0;
  const Progress& progress_;
  DistributedMetadata metadata_;
  std::string buffer_;
};

}  // namespace

void WriteDistributed(const Manifest& manifest, const ReadElements& read, const std::string& out,
                      const std::function<void(uint64_t done, uint64_t all)>& progress) {
  std::vector<const TensorRecord*> tensors;
  std::set<std::string> stepped;  // names of parameters whose number of updates is written
  uint64_t all_bytes = 0;
  for (const TensorRecord& tensor : manifest.tensors) {
    const std::optional<StateName> state = SplitNameOfState(tensor.name);
    if (!state && !IsOfModel(tensor)) continue;
    tensors.push_back(&tensor);
    all_bytes +=
        static_cast<uint64_t>(NumElements(tensor.shape).value()) * DtypeBytes(tensor.dtype).value();
    if (state && state->kind == kAdamState) stepped.insert(state->parameter);
  }
  DistributedWriter writer(out, all_bytes, progress);
  for (const TensorRecord* tensor : tensors) {
    std::vector<std::string> path = {"model", tensor->name};
    if (const std::optional<StateName> state = SplitNameOfState(tensor->name)) {
      path = {"optimizer", "state", state->parameter, state->kind};
    }
    writer.Write(std::move(path), tensor->dtype, tensor->shape,
                 [&](int64_t start, int64_t stop, void* to) { read(*tensor, start, stop, to); });
  }
  const auto write_number = [&](std::vector<std::string> path, const std::string& dtype,
                                auto number) {
    writer.Write(std::move(path), dtype, {},
                 [&](int64_t, int64_t, void* to) { std::memcpy(to, &number, sizeof number); });
  };
  for (const std::string& parameter : stepped) {
    write_number({"optimizer", "state", parameter, "step"}, "F32",
                 static_cast<float>(manifest.optimizer_updates));
  }
  write_number({"step"}, "I64", manifest.position.step);
  writer.Finish();
}

}  // namespace dslaunch
