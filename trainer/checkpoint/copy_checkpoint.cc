#include "trainer/checkpoint/copy_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/file_shards.h"
#include "trainer/checkpoint/folder_lease.h"
#include "trainer/checkpoint/state.h"
#include "trainer/checkpoint/tensor_blocks.h"
#include "trainer/checkpoint/write_journal.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

TensorHeader HeaderOf(const TensorRecord& tensor) {
  return {tensor.name, tensor.dtype, tensor.shape};
}

std::string RunIdOf(const std::string& work) {
  char id[17];
  std::snprintf(id, sizeof id, "%08x%08x", Crc32(work.data(), work.size()),
                Crc32(work.data(), work.size(), 1));
  return id;
}

// Writes the files of one checkpoint into its folder.
class Copy {
 public:
  Copy(const Checkpoint& source, const std::string& begun, const CopyOptions& options)
      : source_(source),
        begun_(begun),
        options_(options),
        stored_(source),
        journal_(begun, options.work) {}

  // Writes the tensors that `wanted` selects into files whose names begin with `kind`.
  template <class Wanted>
  void Write(const std::string& kind, Manifest& manifest, const Wanted& wanted) {
    std::vector<const TensorRecord*> records;
    std::vector<TensorHeader> headers;
    for (const TensorRecord& tensor : source_.manifest.tensors) {
      if (!wanted(tensor)) continue;
      records.push_back(&tensor);
      headers.push_back(HeaderOf(tensor));
    }
    if (records.empty()) return;
    for (const FileShard& shard : DivideIntoShards(headers, kind, kMaxShardBytes)) {
      manifest.files.push_back({shard.name, WriteFile(shard, records, headers)});
      for (const size_t i : shard.tensors) {
        const int64_t elements = NumElements(headers[i].shape).value();
        manifest.tensors.push_back({headers[i].name, headers[i].dtype, headers[i].shape, {}});
        if (elements == 0) continue;
        manifest.tensors.back().slices = {{Shard::Whole(elements), shard.name}};
      }
    }
  }

  void Finish() { journal_.Remove(); }

 private:
  FileSum WriteFile(const FileShard& shard, const std::vector<const TensorRecord*>& records,
                    const std::vector<TensorHeader>& headers) {
    const std::string path = begun_ + "/" + shard.name;
    if (const std::optional<FileSum> kept = journal_.Completed(shard.name, path)) {
      if (options_.on_kept) options_.on_kept(shard.bytes);
      return *kept;
    }
    std::error_code ignored;
    fs::remove(path, ignored);  // removes a file of an interrupted copy
    try {
      const FileSum sum = WriteNew(path, shard, records, headers);
      journal_.Add(shard.name, sum);
      return sum;
    } catch (...) {
      fs::remove(path, ignored);  // frees the disk space of a partial file
      throw;
    }
  }

  FileSum WriteNew(const std::string& path, const FileShard& shard,
                   const std::vector<const TensorRecord*>& records,
                   const std::vector<TensorHeader>& headers) {
    std::vector<TensorHeader> own;
    for (const size_t i : shard.tensors) own.push_back(headers[i]);
    NewSafetensorsFile file(path, own);
    std::vector<char> bytes;
    for (const size_t i : shard.tensors) {
      ForEachBlock(NumElements(headers[i].shape).value(), [&](int64_t start, int64_t stop) {
        ReadBlock(stored_, *records[i], start, stop, bytes);
        file.Write(bytes.data(), bytes.size());
        if (options_.on_written) options_.on_written(bytes.size());
      });
    }
    return file.Finish();
  }

  const Checkpoint& source_;
  const std::string begun_;
  const CopyOptions& options_;
  StoredTensors stored_;
  WriteJournal journal_;
};

// Returns the total size in bytes of the files that an interrupted copy has left in `folder`.
uint64_t BytesIn(const std::string& folder) {
  std::error_code ignored;
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const uint64_t file_bytes = entry.file_size(ignored);
    if (!ignored) bytes += file_bytes;
  }
  return bytes;
}

}  // namespace

uint64_t TensorBytesOf(const Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) bytes += BytesOf(HeaderOf(tensor));
  return bytes;
}

std::string CopyCheckpoint(const Checkpoint& source, const std::string& folder_path,
                           const CopyOptions& options) {
  const std::string tag = TagOf(source.manifest.position.step);
  CheckpointFolder folder(folder_path);
  folder.Make();
  std::error_code ignored;
  if (!options.force && fs::exists(folder_path + "/" + tag, ignored)) {
    throw TrainError(ExitCode::kUsage, folder_path + "/" + tag +
                                           " is there already; give another folder, or --force "
                                           "to replace it");
  }
  folder.UseLease(std::make_shared<FolderLease>(folder_path, ThisProcess("", 1)));
  const std::string begun = folder.BegunPath(tag, options.work);
  if (!fs::exists(begun, ignored)) folder.Begin(begun);
  const uint64_t bytes = TensorBytesOf(source);
  CheckRoom(folder_path, bytes - std::min(bytes, BytesIn(begun)));

  Manifest manifest = source.manifest;
  manifest.files.clear();
  manifest.tensors.clear();
  manifest.run_id = RunIdOf(options.work);
  manifest.job_id = "convert";
  manifest.started_by.clear();
  manifest.world_size = std::max<int64_t>(manifest.world_size, 1);
  manifest.saved_ms = UnixMs();
  Copy copy(source, begun, options);
  try {
    copy.Write("model", manifest, IsOfModel);
    copy.Write("optimizer", manifest,
               [](const TensorRecord& tensor) { return IsOfOptimizer(tensor.name); });
  } catch (const TrainError& error) {
    throw UnfinishedWrite(error, bytes, true);
  }
  copy.Finish();
  const std::string run_id = manifest.run_id;
  folder.Commit(begun, tag, std::move(manifest));
  folder.Settle(tag, run_id, kNoLimit);
  return tag;
}

}  // namespace dslaunch
