#include "trainer/foreign/foreign_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/foreign/deepspeed_files.h"
#include "trainer/foreign/deepspeed_universal.h"
#include "trainer/foreign/deepspeed_zero.h"
#include "trainer/foreign/distributed.h"
#include "trainer/foreign/folder_names.h"
#include "trainer/foreign/plain_names.h"
#include "trainer/foreign/state_dict.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

// A checkpoint's folder or file, and the checkpoint's kind.
struct Found {
  ForeignKind kind = ForeignKind::kStateDict;
  std::string path;
  std::vector<std::string> names;  // names of the folder's entries
  std::string note;
};

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// Returns the checkpoint in `folder`, whose kind follows from the names of its files; nullopt if
// `folder` is not a checkpoint. DeepSpeed's files are checked before a state dict, because Hugging
// Face's Trainer may save a state dict beside them.
std::optional<Found> FindIn(const std::string& folder) {
  Found found{ForeignKind::kDeepSpeed, folder, FolderNames(folder), ""};
  if (IsUniversalFolder(folder)) {
    found.kind = ForeignKind::kUniversal;
  } else if (std::any_of(found.names.begin(), found.names.end(), IsDeepSpeedFile)) {
    found.kind = ForeignKind::kDeepSpeed;
  } else if (IsDistributedFolder(found.names)) {
    found.kind = ForeignKind::kDistributed;
  } else if (IsStateDictFolder(found.names) && !Has(found.names, kManifestFile)) {
    found.kind = ForeignKind::kStateDict;
  } else {
    return std::nullopt;
  }
  return found;
}

// Returns the first line of a small text file; "" if the file cannot be read.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line(300, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  line = line.substr(0, line.find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

// Returns the checkpoint in `folder` that the file `latest` names; nullopt without such a file. If
// that checkpoint was deleted, returns DeepSpeed's only other checkpoint in the folder, with a
// note. Throws if there are several other checkpoints.
std::optional<Found> FindLatest(const std::string& folder) {
  const auto names = FolderNames(folder);
  for (const char* file : {"latest", "latest_universal"}) {
    if (!Has(names, file)) continue;
    const std::string tag = FirstLine(folder + "/" + file);
    if (!IsTag(tag)) return std::nullopt;
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
      if (others.size() < 5) tags += (tags.empty() ? "" : ", ") + Quoted(name);
      others.push_back(*std::move(other));
    }
    const std::string gone =
        folder + "/" + file + " names " + Quoted(tag) + ", which does not exist";
    if (others.size() > 1) RefuseInput(gone + "; give one of these folders: " + tags);
    if (others.empty()) return std::nullopt;
    others[0].note = gone + "; this is " + tags + ".";
    return others[0];
  }
  return std::nullopt;
}

std::optional<Found> FindCheckpoint(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_regular_file(status)) {
    if (!IsStateDictFile(path)) return std::nullopt;
    return Found{ForeignKind::kStateDict, path, {}, ""};
  }
  if (!fs::is_directory(status)) return std::nullopt;
  const std::string folder =
      path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path;
  auto found = FindIn(folder);
  // A state dict has only the weights of the checkpoint that `latest` names, so `latest` is
  // preferred.
  if (!found || found->kind == ForeignKind::kStateDict) {
    if (auto latest = FindLatest(folder)) return latest;
  }
  return found;
}

using NewName = std::function<std::string(const std::string& name)>;

// Renames the model's tensors, also in the names of optimizer states and aliases. Throws if two
// tensors would have the same name.
void Rename(const NewName& new_name, ForeignCheckpoint* plan) {
  const auto renamed = [&](const std::string& name) {
    const std::optional<StateName> state = SplitNameOfState(name);
    return state ? NameOfState(state->kind, new_name(state->parameter)) : new_name(name);
  };
  std::set<std::string> names;
  for (TensorRecord& tensor : plan->checkpoint.manifest.tensors) {
    tensor.name = renamed(tensor.name);
    if (!names.insert(tensor.name).second) {
      RefuseInput(plan->checkpoint.folder + ": two tensors are named " + Quoted(tensor.name) +
                  " without the prefix");
    }
  }
  std::map<std::string, std::string> aliases;
  for (const auto& [alias, name] : plan->aliases) aliases[renamed(alias)] = renamed(name);
  plan->aliases = std::move(aliases);
}

// Removes the prefix from all names that begin with it. Throws if no name begins with it.
void DropPrefix(const std::string& prefix, ForeignCheckpoint* plan) {
  bool found = false;
  Rename(
      [&](const std::string& name) {
        const bool has = name.starts_with(prefix);
        found = found || has;
        return has ? name.substr(prefix.size()) : name;
      },
      plan);
  if (!found) RefuseInput(plan->checkpoint.folder + ": no name begins with " + Quoted(prefix));
}

// Removes the parts that wrappers of the model have added to names, and adds a note about them.
void DropWrappers(ForeignCheckpoint* plan) {
  std::vector<std::string> names;
  for (const TensorRecord& tensor : plan->checkpoint.manifest.tensors) {
    if (IsOfModel(tensor)) names.push_back(tensor.name);
  }
  for (const auto& [alias, name] : plan->aliases) names.push_back(alias);
  const PlainNames plain(names);
  if (plain.note().empty()) return;
  Rename([&](const std::string& name) { return plain.Of(name); }, plan);
  plan->notes.push_back(plain.note());
}

ForeignCheckpoint PlanFound(const Found& found, const ForeignOptions& options) {
  switch (found.kind) {
    case ForeignKind::kDeepSpeed:
      return PlanZero(found.path, found.names);
    case ForeignKind::kUniversal:
      return PlanUniversal(found.path, found.names);
    case ForeignKind::kDistributed:
      return PlanDistributed(found.path, options.prefix);
    case ForeignKind::kStateDict:
      break;
  }
  return PlanStateDict(found.path, options.key);
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
  if (options.prefix.empty()) {
    DropWrappers(&plan);
  } else if (found->kind != ForeignKind::kDistributed) {
    // PlanDistributed has already applied the prefix, so only plans of other kinds are changed.
    DropPrefix(options.prefix, &plan);
  }
  std::set<std::string> names;
  for (const TensorRecord& tensor : plan.checkpoint.manifest.tensors) names.insert(tensor.name);
  std::erase_if(plan.aliases, [&](const auto& alias) { return !names.contains(alias.second); });
  return plan;
}

}  // namespace dslaunch
