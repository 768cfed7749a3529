#include "trainer/foreign/open_foreign.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kJustNowS = 60;
constexpr int kMaxLookedAt = 100'000;

// Returns "; FILE was changed 3 s ago, ..." if a file of the folder changed in the last minute,
// else an empty string.
std::string StillWritten(const std::string& path) {
  std::string newest;
  std::time_t newest_s = 0;
  const auto look = [&](const std::string& file) {
    struct stat info;
    if (stat(file.c_str(), &info) < 0 || info.st_mtime <= newest_s) return;
    newest = file;
    newest_s = info.st_mtime;
  };
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) look(path);
  int looked_at = 0;
  for (fs::recursive_directory_iterator entry(path, ignored), end;
       entry != end && looked_at < kMaxLookedAt; entry.increment(ignored), ++looked_at) {
    if (entry.depth() > 2) entry.disable_recursion_pending();
    if (entry->is_regular_file(ignored)) look(entry->path());
  }
  const std::time_t age_s = std::time(nullptr) - newest_s;
  if (newest.empty() || age_s < 0 || age_s > kJustNowS) return "";
  return "; " + newest + " was changed " + std::to_string(age_s) +
         " s ago, so the checkpoint may still be being saved: try again when it is complete";
}

// Returns the minimum size in bytes that each file needs to contain its tensors, keyed by path.
std::map<std::string, uint64_t> NeededBytes(const ForeignCheckpoint& foreign) {
  std::map<std::string, uint64_t> needed;
  for (const TensorRecord& tensor : foreign.checkpoint.manifest.tensors) {
    for (const auto& [shard, file] : tensor.slices) {
      const BytesInFile& place = foreign.places.at(file);
      const uint64_t elements = place.stride.empty() ? static_cast<uint64_t>(shard.elements()) : 0;
      uint64_t& bytes = needed[place.path];
      bytes = std::max(bytes, place.begin + elements * DtypeBytes(tensor.dtype).value_or(0));
    }
  }
  return needed;
}

}  // namespace

ForeignCheckpoint OpenForeign(const std::string& path, const ForeignOptions& options) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) RefuseInput(path + ": there is no such file or folder");
  try {
    if (WhatIs(path)) return PlanForeign(path, options);
  } catch (const TrainError& error) {
    if (error.code() != ExitCode::kBadInput) throw;
    RefuseInput(error.what() + StillWritten(path));
  }
  RefuseInput(path + " is not a checkpoint that dslaunch knows: neither its own (with " +
              kManifestFile + "), nor one of DeepSpeed, of PyTorch, or a safetensors file" +
              StillWritten(path) + "; see dslaunch help other-checkpoints");
}

std::string ProblemOf(const ForeignCheckpoint& foreign) {
  if (!foreign.missing.empty()) {
    const size_t others = foreign.missing.size() - 1;
    return foreign.missing[0] +
           (others == 0 ? " is missing" : " and " + std::to_string(others) + " more are missing");
  }
  for (const auto& [file, bytes] : NeededBytes(foreign)) {
    std::error_code error;
    const uint64_t found = fs::file_size(file, error);
    if (error) return file + ": " + error.message();
    if (found < bytes) {
      return file + " has " + std::to_string(found) + " bytes of at least " + std::to_string(bytes);
    }
  }
  return "";
}

void RequireWhole(const std::string& path, const ForeignCheckpoint& foreign) {
  const std::string problem = ProblemOf(foreign);
  if (problem.empty()) return;
  RefuseInput(path + " is incomplete: " + problem + StillWritten(path));
}

}  // namespace dslaunch
