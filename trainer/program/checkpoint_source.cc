#include "trainer/program/checkpoint_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/foreign_reader.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kJustNowS = 60;
constexpr int kMaxLookedAt = 100'000;

// Returns "; FILE was changed 3 s ago, ..." if a file of the folder was changed just now, else "".
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

// Returns the number of bytes that each file must have, by path.
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

bool HasManifest(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/" + kManifestFile, ignored);
}

CheckpointSource OpenSource(const std::string& path, const ForeignOptions& options) {
  if (HasManifest(path)) return {path, ReadCheckpoint(path), std::nullopt};
  std::error_code ignored;
  if (!fs::exists(path, ignored)) RefuseInput(path + ": there is no such file or folder");
  try {
    if (WhatIs(path)) {
      ForeignCheckpoint plan = PlanForeign(path, options);
      Checkpoint checkpoint = WithReader(plan);
      return {path, std::move(checkpoint), std::move(plan)};
    }
  } catch (const TrainError& error) {
    if (error.code() != ExitCode::kBadInput) throw;
    RefuseInput(error.what() + StillWritten(path));
  }
  RefuseInput(path + " is not a checkpoint that dslaunch knows: neither its own (with " +
              kManifestFile + "), nor one of DeepSpeed, of PyTorch, or a safetensors file" +
              StillWritten(path) + "; see dslaunch help other-checkpoints");
}

std::string ProblemOf(const CheckpointSource& source) {
  if (!source.foreign) return "";
  if (!source.foreign->missing.empty()) {
    const size_t others = source.foreign->missing.size() - 1;
    return source.foreign->missing[0] +
           (others == 0 ? " is missing" : " and " + std::to_string(others) + " more are missing");
  }
  for (const auto& [file, bytes] : NeededBytes(*source.foreign)) {
    std::error_code error;
    const uint64_t found = fs::file_size(file, error);
    if (error) return file + ": " + error.message();
    if (found < bytes) {
      return file + " has " + std::to_string(found) + " bytes of at least " + std::to_string(bytes);
    }
  }
  return "";
}

void RequireWhole(const CheckpointSource& source) {
  if (!source.foreign) return VerifyCheckpoint(source.checkpoint);
  const std::string problem = ProblemOf(source);
  if (problem.empty()) return;
  RefuseInput(source.path + " is incomplete: " + problem + StillWritten(source.path));
}

void PrintNames(const std::string& line) { PrintLine(SanitizeForTerminal(line)); }

std::string IdentityOf(const CheckpointSource& source) {
  std::set<std::string> files;
  if (source.foreign) {
    for (const auto& [key, place] : source.foreign->places) files.insert(place.path);
  } else {
    for (const FileRecord& file : source.checkpoint.manifest.files) {
      files.insert(PathOf(source.checkpoint, file));
    }
  }
  std::error_code ignored;
  std::string facts;
  for (const std::string& file : files) {
    struct stat info;
    if (stat(file.c_str(), &info) < 0) continue;
    facts += file + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) +
             "." + std::to_string(info.st_mtim.tv_nsec) + "\n";
  }
  char sum[9];
  std::snprintf(sum, sizeof sum, "%08x", Crc32(facts.data(), facts.size()));
  return fs::canonical(source.path, ignored).string() + ", " + std::to_string(files.size()) +
         " files " + sum;
}

}  // namespace dslaunch
