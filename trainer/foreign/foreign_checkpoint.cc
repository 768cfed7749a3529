#include "trainer/foreign/foreign_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/foreign/deepspeed_files.h"
#include "trainer/foreign/deepspeed_universal.h"
#include "trainer/foreign/deepspeed_zero.h"
#include "trainer/foreign/folder_names.h"
#include "trainer/foreign/torch_archive.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

// A checkpoint's own folder or file.
struct Found {
  ForeignKind kind = ForeignKind::kStateDict;
  std::string path;
  std::vector<std::string> names;  // entries of the folder
  std::string note;
};

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// Returns what `folder` is by the names of its own files, DeepSpeed's before a state dict, which
// Trainer may save beside them.
std::optional<Found> FindIn(const std::string& folder) {
  Found found{ForeignKind::kDeepSpeed, folder, FolderNames(folder), ""};
  if (IsUniversalFolder(folder)) {
    found.kind = ForeignKind::kUniversal;
  } else if (std::any_of(found.names.begin(), found.names.end(), IsDeepSpeedFile)) {
    found.kind = ForeignKind::kDeepSpeed;
  } else if (Has(found.names, ".metadata")) {
    found.kind = ForeignKind::kDistributed;
  } else if (Has(found.names, "pytorch_model.bin") ||
             Has(found.names, "pytorch_model.bin.index.json")) {
    found.kind = ForeignKind::kStateDict;
  } else {
    return std::nullopt;
  }
  return found;
}

// Returns the first line of a small text file; "" if there is none.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line(300, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  line = line.substr(0, line.find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

// Returns the checkpoint in `folder` that the file `latest` names. If that one was deleted, returns
// the only other one, with a note; throws if there are several.
std::optional<Found> FindLatest(const std::string& folder) {
  const auto names = FolderNames(folder);
  for (const char* file : {"latest", "latest_universal"}) {
    if (!Has(names, file)) continue;
    const std::string tag = FirstLine(folder + "/" + file);
    if (!IsTag(tag))
      RefuseInput(folder + "/" + file + ": " + Quoted(tag) + " is not a folder's name");
    if (Has(names, tag)) return FindIn(folder + "/" + tag);
    std::vector<Found> others;
    std::string tags;
    for (const std::string& name : names) {
      if (!fs::is_directory(folder + "/" + name)) continue;
      auto other = FindIn(folder + "/" + name);
      if (!other ||
          (other->kind != ForeignKind::kDeepSpeed && other->kind != ForeignKind::kUniversal)) {
        continue;
      }
      tags += (tags.empty() ? "" : ", ") + Quoted(name);
      others.push_back(*std::move(other));
    }
    const std::string gone =
        folder + "/" + file + " names " + Quoted(tag) + ", which does not exist";
    if (others.size() > 1) RefuseInput(gone + "; give one of these folders: " + tags);
    if (others.empty()) RefuseInput(gone);
    others[0].note = gone + "; this is " + tags + ".";
    return others[0];
  }
  return std::nullopt;
}

std::optional<Found> FindCheckpoint(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_regular_file(status)) {
    if (!IsTorchArchive(path)) return std::nullopt;
    return Found{ForeignKind::kStateDict, path, {}, ""};
  }
  if (!fs::is_directory(status)) return std::nullopt;
  const std::string folder =
      path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path;
  auto found = FindIn(folder);
  // A state dict beside `latest` is the weights of the checkpoint that `latest` names.
  if (!found || found->kind == ForeignKind::kStateDict) {
    if (auto latest = FindLatest(folder)) return latest;
  }
  return found;
}

// Drops `prefix` from the front of names of tensors, also of their optimizer state and aliases.
class PrefixDropper {
 public:
  explicit PrefixDropper(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string Dropped(const std::string& name) const {
    size_t at = 0;
    if (name.starts_with("optimizer/"))
      at = name.find('/', std::string_view("optimizer/").size()) + 1;
    if (name.compare(at, prefix_.size(), prefix_) != 0) return name;
    return name.substr(0, at) + name.substr(at + prefix_.size());
  }

  void Drop(ForeignCheckpoint* plan) const {
    std::set<std::string> names;
    for (TensorRecord& tensor : plan->checkpoint.manifest.tensors) {
      tensor.name = Dropped(tensor.name);
      if (!names.insert(tensor.name).second) {
        RefuseInput(plan->checkpoint.folder + ": two tensors are named " + Quoted(tensor.name) +
                    " without the prefix " + Quoted(prefix_));
      }
    }
    std::map<std::string, std::string> aliases;
    for (const auto& [alias, name] : plan->aliases) aliases[Dropped(alias)] = Dropped(name);
    plan->aliases = std::move(aliases);
  }

 private:
  std::string prefix_;
};

bool AllBeginWith(const ForeignCheckpoint& plan, std::string_view prefix) {
  const auto& tensors = plan.checkpoint.manifest.tensors;
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return tensor.name.starts_with("optimizer/") || tensor.name.starts_with(prefix);
  });
}

// DistributedDataParallel and torch.compile wrap the model, and so its names.
void DropPrefixes(const std::string& given, ForeignCheckpoint* plan) {
  if (!given.empty()) {
    PrefixDropper(given).Drop(plan);
    return;
  }
  for (bool found = true; found;) {
    found = false;
    for (const char* prefix : {"module.", "_orig_mod."}) {
      if (!AllBeginWith(*plan, prefix)) continue;
      PrefixDropper(prefix).Drop(plan);
      plan->notes.push_back("All names begin with " + Quoted(prefix) + ", which was dropped.");
      found = true;
    }
  }
}

ForeignCheckpoint PlanFound(const Found& found, const ForeignOptions&) {
  switch (found.kind) {
    case ForeignKind::kDeepSpeed:
      return PlanZero(found.path, found.names);
    case ForeignKind::kUniversal:
      return PlanUniversal(found.path, found.names);
    case ForeignKind::kDistributed:
    case ForeignKind::kStateDict:
      break;
  }
  RefuseInput(found.path + ": checkpoints of this kind are not read");
}

}  // namespace

std::optional<ForeignKind> WhatIs(const std::string& path) {
  const auto found = FindCheckpoint(path);
  if (!found) return std::nullopt;
  return found->kind;
}

ForeignCheckpoint PlanForeign(const std::string& path, const ForeignOptions& options) {
  const auto found = FindCheckpoint(path);
  if (!found) {
    RefuseInput(path +
                ": this is not a checkpoint that can be read: DeepSpeed's, one of "
                "torch.distributed.checkpoint, or a file of torch.save");
  }
  ForeignCheckpoint plan = PlanFound(*found, options);
  if (plan.checkpoint.tag.empty()) plan.checkpoint.tag = fs::path(found->path).filename().string();
  if (!found->note.empty()) plan.notes.insert(plan.notes.begin(), found->note);
  DropPrefixes(options.prefix, &plan);
  std::set<std::string> names;
  for (const TensorRecord& tensor : plan.checkpoint.manifest.tensors) names.insert(tensor.name);
  std::erase_if(plan.aliases, [&](const auto& alias) { return !names.contains(alias.second); });
  return plan;
}

}  // namespace dslaunch
