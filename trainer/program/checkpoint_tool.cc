#include "trainer/program/checkpoint_tool.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <optional>
#include <span>

#include "base/text/sanitize.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpoint_list.h"
#include "trainer/checkpoint/state.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/config/recipe.h"
#include "trainer/train/memory_plan.h"
#include "trainer/train/report.h"
#include "trainer/weights/pretrained.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

// A line with names from folders and files that may come from others.
void PrintNames(const std::string& line) { PrintLine(SanitizeForTerminal(line)); }

bool IsCheckpoint(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/" + kManifestFile, ignored);
}

void List(const std::string& dir, bool json) {
  if (IsCheckpoint(dir)) RefuseInput(dir + " is a checkpoint; give the folder that contains it");
  const std::vector<ListedCheckpoint> list = FindCheckpoints(dir);
  PrintText(json ? CheckpointsJson(list) : CheckpointTable(list));
}

std::vector<std::string> FindDamageIn(const std::string& folder) {
  try {
    return FindDamage(ReadCheckpoint(folder));
  } catch (const TrainError& damage) {
    return {damage.what()};
  }
}

// Files of tensors without a manifest are a checkpoint that is damaged.
bool HoldsTensors(const std::string& path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".safetensors") return true;
  }
  return false;
}

void Verify(const std::string& path) {
  std::vector<std::string> folders = {path};
  if (!IsCheckpoint(path) && !HoldsTensors(path)) {
    folders.clear();
    for (const ListedCheckpoint& one : FindCheckpoints(path))
      folders.push_back(path + "/" + one.tag);
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

// Numbers of floating point get `wanted`, others stay.
at::ScalarType ExportType(at::ScalarType saved, const std::optional<at::ScalarType>& wanted) {
  return wanted && c10::isFloatingType(saved) ? *wanted : saved;
}

struct ExportOptions {
  std::optional<at::ScalarType> dtype;  // nullopt: as saved
  bool force = false;                   // overwrite what is in the folder
};

// Returns nullopt if these are not options of export.
std::optional<ExportOptions> ParseExportOptions(std::span<const std::string> words) {
  ExportOptions options;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--force") {
      options.force = true;
    } else if (words[i] == "--dtype" && i + 1 < words.size()) {
      options.dtype = ParseDtype(words[++i]);
      if (!options.dtype) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

void RefuseExisting(const std::string& out) {
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::error_code ignored;
    if (!fs::exists(out + "/" + name, ignored)) continue;
    throw TrainError(ExitCode::kUsage, out + "/" + name +
                                           " is there already; give another folder, or --force to "
                                           "overwrite it");
  }
}

void Export(const std::string& folder, const std::string& out, const ExportOptions& options) {
  if (!IsCheckpoint(folder)) {
    RefuseInput(folder + " is not a checkpoint: it contains no " + kManifestFile +
                "; give one of the folders that dslaunch checkpoint ls lists");
  }
  if (!options.force) RefuseExisting(out);
  const Checkpoint checkpoint = ReadCheckpoint(folder);
  VerifyCheckpoint(checkpoint);
  std::vector<ExportedTensor> tensors;
  std::vector<const TensorRecord*> records;
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    if (!IsOfModel(tensor)) continue;
    const std::optional<at::ScalarType> saved = ScalarTypeOf(tensor.dtype);
    if (!saved) RefuseInput(folder + ": tensor " + tensor.name + " is " + tensor.dtype);
    tensors.push_back({tensor.name, ExportType(*saved, options.dtype), tensor.shape});
    records.push_back(&tensor);
  }
  StoredTensors stored(checkpoint);
  const auto whole = [&](size_t i) { return stored.ReadWhole(*records[i]).to(tensors[i].dtype); };
  const std::string& model = checkpoint.manifest.model;
  std::optional<ModelConfig> config;
  if (!model.empty()) config = ParseModelSection(model, folder + "/" + kManifestFile);
  ExportHuggingFace(tensors, whole, config, out);
  PrintNames(std::to_string(tensors.size()) + " tensors of " + folder + " are written to " + out +
             (config ? "" : "; no config.json, because the checkpoint is not from a recipe"));
}

}  // namespace

void RunCheckpointTool(const std::vector<std::string>& words) {
  const size_t count = words.size();
  if (count == 2 && words[0] == "ls") return List(words[1], false);
  if (count == 3 && words[0] == "ls" && words[2] == "--json") return List(words[1], true);
  if (count == 2 && words[0] == "verify") return Verify(words[1]);
  if (count >= 3 && words[0] == "export") {
    const auto options = ParseExportOptions(std::span(words).subspan(3));
    if (options) return Export(words[1], words[2], *options);
  }
  throw TrainError(ExitCode::kUsage, "usage: dslaunch checkpoint ls | verify | export");
}

}  // namespace dslaunch
