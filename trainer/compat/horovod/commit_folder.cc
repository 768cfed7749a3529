#include "trainer/compat/horovod/commit_folder.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "dslaunch/tensor_file.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod {
namespace {

namespace fs = std::filesystem;

constexpr char kUnfinished[] = "unfinished";

struct FoundFile {
  fs::path path;
  CommitFileInfo info;
};

// Returns the files of commits in `folder`; empty if the folder is missing or cannot be read.
std::vector<FoundFile> CommitsIn(const fs::path& folder) {
  std::vector<FoundFile> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto info = ParseCommitFileName(at->path().filename().native()))
      found.push_back({at->path(), *info});
  }
  return found;
}

}  // namespace

std::string ToText(const CommitId& id) {
  return std::to_string(id.generation) + "." + std::to_string(id.number);
}

int NewestRank(const std::vector<CommitId>& by_rank) {
  return static_cast<int>(std::ranges::max_element(by_rank) - by_rank.begin());
}

std::string CommitFileName(const CommitId& id, const FileSum& sum) {
  char crc[9];
  std::snprintf(crc, sizeof crc, "%08x", sum.crc32);
  return "commit." + ToText(id) + "." + std::to_string(sum.bytes) + "." + crc + ".safetensors";
}

std::optional<CommitFileInfo> ParseCommitFileName(std::string_view name) {
  CommitFileInfo info;
  long long generation = 0, number = 0;
  unsigned long long bytes = 0;
  unsigned crc = 0;
  const std::string text(name);
  if (std::sscanf(text.c_str(), "commit.%18lld.%18lld.%18llu.%8x.safetensors", &generation, &number,
                  &bytes, &crc) != 4) {
    return std::nullopt;
  }
  info = {{generation, number}, {bytes, crc}};
  // Other spellings of the numbers, such as with signs, spaces or leading zeros, are rejected.
  if (CommitFileName(info.id, info.sum) != text || generation < 0 || number < 0)
    return std::nullopt;
  return info;
}

CommitFolder::CommitFolder(std::string folder, int node_rank)
    : folder_(std::move(folder)), own_(folder_ + "/node_" + std::to_string(node_rank)) {}

void CommitFolder::Write(const SavedCommit& commit) const {
  std::error_code error;
  fs::create_directories(own_, error);
  const std::string unfinished = own_ + "/" + kUnfinished;
  if (!error) fs::remove(unfinished, error);
  if (error) throw TrainError(ExitCode::kIo, own_ + " cannot be used: " + error.message());
  const auto [bytes, crc32] = SaveTensors(unfinished, commit.values);
  const std::string whole = own_ + "/" + CommitFileName(commit.id, {bytes, crc32});
  fs::rename(unfinished, whole, error);
  if (error) throw TrainError(ExitCode::kIo, whole + " cannot be made: " + error.message());
  SyncFolder(own_);
  for (const FoundFile& old : CommitsIn(own_)) {
    // If the removal fails, the next Write tries again, so the error is ignored.
    if (old.path != whole) fs::remove(old.path, error);
  }
}

std::optional<SavedCommit> CommitFolder::ReadNewest() const {
  std::vector<FoundFile> found;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().native().starts_with("node_")) continue;
    for (FoundFile& file : CommitsIn(at->path())) found.push_back(std::move(file));
  }
  std::ranges::sort(found, std::greater<>(), [](const FoundFile& file) { return file.info.id; });
  for (const FoundFile& file : found) {
    try {
      if (SumFile(file.path) != file.info.sum)
        throw TrainError(ExitCode::kBadInput, file.path.native() + " is damaged");
      return SavedCommit{file.info.id, LoadTensors(file.path)};
    } catch (const TrainError& problem) {
      PrintError("elastic: commit " + ToText(file.info.id) + " is not used: " + problem.what());
    }
  }
  return std::nullopt;
}

}  // namespace dslaunch::horovod
