#include "trainer/program/checkpoint_tool.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <span>

#include "base/count.h"
#include "trainer/base/format.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpoint_list.h"
#include "trainer/program/checkpoint_convert.h"
#include "trainer/program/checkpoint_diff.h"
#include "trainer/program/checkpoint_source.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

ListedCheckpoint Listed(const CheckpointSource& source, const std::string& tag) {
  return {.tag = tag,
          .problem = ProblemOf(source),
          .manifest = source.checkpoint.manifest,
          .program = source.foreign->program,
          .aliases = source.foreign->aliases,
          .notes = source.foreign->notes,
          .missing = source.foreign->missing};
}

// Returns the checkpoints of another program in the folder `dir`, sorted by step; empty if there
// are fewer than two.
std::vector<ListedCheckpoint> FindForeign(const std::string& dir) {
  static const std::regex kNames(R"((global_step|checkpoint-|step-|step_)\d+)");
  std::error_code ignored;
  std::vector<std::string> tags;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename();
    if (std::regex_match(name, kNames) && WhatIs(entry.path())) tags.push_back(name);
  }
  if (tags.size() < 2) return {};
  const std::string latest = CheckpointFolder(dir).ReadLatest();
  std::vector<ListedCheckpoint> list;
  for (const std::string& tag : tags) {
    try {
      list.push_back(Listed(OpenSource(dir + "/" + tag), tag));
    } catch (const TrainError& damage) {
      list.push_back({tag, damage.what(), false, {}});
    }
    list.back().latest = tag == latest;
  }
  std::ranges::stable_sort(list, {}, [](const ListedCheckpoint& one) {
    return std::pair(one.manifest.position.step, one.tag);
  });
  return list;
}

void List(const std::string& path, bool json) {
  if (HasManifest(path)) {
    RefuseInput(path + " is a checkpoint; give the folder that contains it");
  }
  std::error_code ignored;
  std::vector<ListedCheckpoint> list;
  if (fs::is_directory(path, ignored)) list = FindCheckpoints(path);
  if (list.empty()) list = FindForeign(path);
  if (list.empty() && WhatIs(path)) {
    list.push_back(Listed(OpenSource(path), path));
    if (!json) return PrintText(CheckpointFacts(list[0]));
  }
  if (list.empty()) list = FindCheckpoints(path);  // throws if `path` is not a folder
  PrintText(json ? CheckpointsJson(list) : CheckpointTable(list));
}

std::vector<std::string> FindDamageIn(const std::string& folder) {
  try {
    return FindDamage(ReadCheckpoint(folder));
  } catch (const TrainError& damage) {
    return {damage.what()};
  }
}

// Returns whether the folder has files that ranks of dslaunch write. Such a folder without a
// manifest is a damaged checkpoint.
bool HasRankFiles(const std::string& path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("generator") && name.ends_with(".safetensors")) return true;
  }
  return false;
}

void VerifyForeign(const std::string& path) {
  const CheckpointSource source = OpenSource(path);
  for (const std::string& missing : source.foreign->missing) PrintNames("missing: " + missing);
  RequireWhole(source);
  const ListedCheckpoint listed = Listed(source, path);
  const Manifest& manifest = listed.manifest;
  PrintNames("complete: " + path + " (" + listed.program + ", " +
             std::to_string(manifest.files.size()) +
             (manifest.files.size() == 1 ? " file, " : " files, ") + BytesText(BytesOf(manifest)) +
             ", " + Count(manifest.tensors.size(), "tensor") + "; it has no checksums to verify)");
}

void Verify(const std::string& path) {
  std::vector<std::string> folders = {path};
  if (!HasManifest(path) && !HasRankFiles(path)) {
    folders.clear();
    std::error_code ignored;
    const bool is_folder = fs::is_directory(path, ignored);
    std::vector<ListedCheckpoint> own;
    if (is_folder) own = FindCheckpoints(path);
    if (own.empty() && WhatIs(path)) return VerifyForeign(path);
    if (!is_folder) own = FindCheckpoints(path);  // throws, because `path` is not a folder
    for (const ListedCheckpoint& one : own) folders.push_back(path + "/" + one.tag);
    if (folders.empty()) RefuseInput(path + " holds no checkpoint");
  }
  size_t damaged = 0;
  for (const std::string& folder : folders) {
    const std::vector<std::string> problems = FindDamageIn(folder);
    damaged += problems.empty() ? 0 : 1;
    for (const std::string& problem : problems) PrintNames("damaged: " + problem);
    if (!problems.empty()) continue;
    const Manifest manifest = ReadCheckpoint(folder).manifest;
    PrintNames("complete: " + folder + " (" + std::to_string(manifest.files.size()) + " files, " +
               BytesText(BytesOf(manifest)) + ")");
  }
  if (damaged > 0) {
    RefuseInput(std::to_string(damaged) + " of " + std::to_string(folders.size()) +
                (folders.size() == 1 ? " checkpoint is" : " checkpoints are") + " damaged");
  }
}

std::optional<at::ScalarType> ParseDtype(const std::string& word) {
  static const std::map<std::string, at::ScalarType> kTypes = {
      {"bf16", at::kBFloat16}, {"fp16", at::kHalf}, {"fp32", at::kFloat}};
  const auto found = kTypes.find(word);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ConvertKind> ParseKind(const std::string& word) {
  static const std::map<std::string, ConvertKind> kKinds = {
      {"safetensors", ConvertKind::kSafetensors},
      {"dslaunch", ConvertKind::kDslaunch},
      {"deepspeed-universal", ConvertKind::kUniversal},
      {"dcp", ConvertKind::kDistributed}};
  const auto found = kKinds.find(word);
  return found == kKinds.end() ? std::nullopt : std::optional(found->second);
}

// Parses the options of `export` if `exports` is true, else of `convert`. Returns nullopt if they
// are not valid.
std::optional<ConvertOptions> ParseConvertOptions(std::span<const std::string> words,
                                                  bool exports) {
  ConvertOptions options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--force") {
      options.force = true;
      continue;
    }
    if (word == "--merge_lora" && exports) {
      options.merge_lora = true;
      continue;
    }
    if (i + 1 == words.size()) return std::nullopt;
    const std::string& value = words[++i];
    if (word == "--dtype") {
      options.dtype = ParseDtype(value);
      if (!options.dtype) return std::nullopt;
    } else if (word == "--to" && !exports) {
      const std::optional<ConvertKind> kind = ParseKind(value);
      if (!kind) return std::nullopt;
      options.to = *kind;
    } else if (word == "--prefix" && !exports) {
      options.source.prefix = value;
    } else if (word == "--key" && !exports) {
      options.source.key = value;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

void Export(const std::string& folder, const std::string& out, const ConvertOptions& options) {
  if (!HasManifest(folder)) {
    RefuseInput(folder + " is not a checkpoint: it contains no " + kManifestFile +
                "; give one of the folders that dslaunch checkpoint ls lists");
  }
  Convert(folder, out, options);
}

}  // namespace

int RunCheckpointTool(const std::vector<std::string>& words) {
  const size_t count = words.size();
  const std::string action = count == 0 ? "" : words[0];
  const bool json = count > 0 && words.back() == "--json";
  if (action == "ls" && count == (json ? 3 : 2)) return List(words[1], json), 0;
  if (action == "verify" && count == 2) return Verify(words[1]), 0;
  if (action == "diff" && count == (json ? 4 : 3)) {
    return PrintDifferences(LatestIn(words[1]), LatestIn(words[2]), json) ? 1 : 0;
  }
  if ((action == "export" || action == "convert") && count >= 3) {
    const auto options = ParseConvertOptions(std::span(words).subspan(3), action == "export");
    if (options && action == "export") return Export(LatestIn(words[1]), words[2], *options), 0;
    if (options) return Convert(LatestIn(words[1]), words[2], *options), 0;
  }
  throw TrainError(ExitCode::kUsage,
                   "usage: dslaunch checkpoint ls | verify | export | convert | diff");
}

}  // namespace dslaunch
