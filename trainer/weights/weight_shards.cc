#include "trainer/weights/weight_shards.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/write_journal.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

std::string Temporary(const std::string& folder, const std::string& name) {
  return folder + "/tmp-" + name;
}

void Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return;
  throw TrainError(ExitCode::kIo, to + ": cannot be created: " + std::strerror(errno));
}

void Remove(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw TrainError(ExitCode::kIo, path + ": cannot be removed: " + error.message());
}

std::string IndexText(const std::vector<FileShard>& shards,
                      const std::vector<TensorHeader>& tensors) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  uint64_t total_bytes = 0;
  for (const FileShard& shard : shards) {
    total_bytes += shard.bytes;
    for (const size_t i : shard.tensors) map[tensors[i].name] = shard.name;
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes}}},
                                        {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

class Writer {
 public:
  Writer(const WeightOutput& output, const std::vector<TensorHeader>& tensors)
      : output_(output),
        tensors_(tensors),
        shards_(DivideIntoShards(tensors, "model", output.max_shard_bytes)),
        journal_(output.folder, output.work) {}

  void Run(const WriteTensor& write) {
    std::set<std::string> kept;
    uint64_t needed_bytes = 0;
    for (const FileShard& shard : shards_) {
      if (IsKept(shard)) {
        kept.insert(shard.name);
        if (output_.on_kept) output_.on_kept(shard.bytes);
      } else {
        needed_bytes += shard.bytes;
      }
    }
    CheckRoom(output_.folder, needed_bytes);
    for (const FileShard& shard : shards_) {
      if (kept.contains(shard.name)) continue;
      try {
        WriteShard(shard, write);
      } catch (const TrainError& error) {
        Abandon(shard);
        throw UnfinishedWrite(error, needed_bytes, !output_.work.empty());
      } catch (...) {
        Abandon(shard);
        throw;
      }
      needed_bytes -= shard.bytes;
    }
    Publish();
  }

 private:
  std::string PathOf(const FileShard& shard) const { return Temporary(output_.folder, shard.name); }

  // Returns whether a complete shard is kept. A process that was interrupted while renaming may
  // have given shards their final names, so they are renamed back.
  bool IsKept(const FileShard& shard) const {
    if (journal_.Completed(shard.name, PathOf(shard))) return true;
    const std::string path = output_.folder + "/" + shard.name;
    if (!journal_.Completed(shard.name, path)) return false;
    Rename(path, PathOf(shard));
    return true;
  }

  void WriteShard(const FileShard& shard, const WriteTensor& write) {
    Remove(PathOf(shard));
    std::vector<TensorHeader> headers;
    for (const size_t i : shard.tensors) headers.push_back(tensors_[i]);
    // transformers requires the name of the framework under "format", so it is written.
    NewSafetensorsFile file(PathOf(shard), headers, {{"format", "pt"}});
    for (const size_t i : shard.tensors) write(i, file);
    journal_.Add(shard.name, file.Finish());
  }

  // Removes the files that the next process would not keep, to free disk space.
  void Abandon(const FileShard& unfinished) {
    std::error_code ignored;
    fs::remove(PathOf(unfinished), ignored);
    if (!output_.work.empty()) return;
    for (const FileShard& shard : shards_) fs::remove(PathOf(shard), ignored);
    fs::remove(output_.folder + "/" + kWriteJournal, ignored);
  }

  // Renames the shards to their final names. The index is removed first and written last, so that
  // no index names files of two writes.
  void Publish() {
    const bool has_index = shards_.size() > 1;
    if (has_index) Remove(output_.folder + "/" + kWeightIndexFile);
    std::set<std::string> own;
    for (const FileShard& shard : shards_) {
      Rename(PathOf(shard), output_.folder + "/" + shard.name);
      own.insert(shard.name);
    }
    if (has_index) {
      ReplaceFile(output_.folder, kWeightIndexFile, [&](const std::string& path) {
        WriteNewFile(path, IndexText(shards_, tensors_));
      });
      own.insert(kWeightIndexFile);
    }
    RemoveOthers(own);
    SyncFolder(output_.folder);
    if (output_.on_published) output_.on_published();
    journal_.Remove();
  }

  // Removes other weight files. Otherwise transformers would read a model.safetensors, or an old
  // index, instead of these shards.
  void RemoveOthers(const std::set<std::string>& own) const {
    static const std::regex kWeights(
        R"((tmp-)?model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?)");
    std::error_code error;
    std::vector<std::string> others;
    for (const fs::directory_entry& entry : fs::directory_iterator(output_.folder, error)) {
      const std::string name = entry.path().filename();
      if (!own.contains(name) && std::regex_match(name, kWeights)) others.push_back(name);
    }
    for (const std::string& name : others) Remove(output_.folder + "/" + name);
  }

  const WeightOutput& output_;
  const std::vector<TensorHeader>& tensors_;
  const std::vector<FileShard> shards_;
  WriteJournal journal_;
};

}  // namespace

void WriteWeights(const WeightOutput& output, const std::vector<TensorHeader>& tensors,
                  const WriteTensor& write) {
  std::error_code error;
  fs::create_directories(output.folder, error);
  if (error) {
    throw TrainError(ExitCode::kIo, output.folder + ": cannot be created: " + error.message());
  }
  Writer(output, tensors).Run(write);
}

bool IsInterrupted(const WeightOutput& output) {
  return WriteJournal::Continues(output.folder, output.work);
}

void ReplaceFile(const std::string& folder, const std::string& name,
                 const std::function<void(const std::string& path)>& write) {
  const std::string temporary = Temporary(folder, name);
  Remove(temporary);  // left by a killed process
  write(temporary);
  Rename(temporary, folder + "/" + name);
}

}  // namespace dslaunch
