#include "trainer/program/checkpoint_source.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/log.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/foreign/foreign_reader.h"
#include "trainer/foreign/open_foreign.h"

namespace dslaunch {

namespace fs = std::filesystem;

bool HasManifest(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/" + kManifestFile, ignored);
}

std::string LatestIn(const std::string& path) {
  if (HasManifest(path)) return path;
  const std::string tag = CheckpointFolder(path).ReadLatest();
  if (tag.empty() || tag.find('/') != std::string::npos) return path;
  return HasManifest(path + "/" + tag) ? path + "/" + tag : path;
}

CheckpointSource OpenSource(const std::string& path, const ForeignOptions& options) {
  if (HasManifest(path)) return {path, ReadCheckpoint(path), std::nullopt};
  ForeignCheckpoint plan = OpenForeign(path, options);
  Checkpoint checkpoint = WithReader(plan);
  return {path, std::move(checkpoint), std::move(plan)};
}

std::string ProblemOf(const CheckpointSource& source) {
  return source.foreign ? ProblemOf(*source.foreign) : "";
}

void RequireWhole(const CheckpointSource& source) {
  if (!source.foreign) return VerifyCheckpoint(source.checkpoint);
  RequireWhole(source.path, *source.foreign);
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
