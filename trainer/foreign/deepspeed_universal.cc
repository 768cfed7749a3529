#include "trainer/foreign/deepspeed_universal.h"

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/deepspeed_files.h"
#include "trainer/foreign/deepspeed_model.h"
#include "trainer/foreign/folder_names.h"
#include "trainer/foreign/plan_tensors.h"
#include "trainer/foreign/zero_parts.h"

namespace dslaunch {
namespace {

constexpr std::string_view kZero = "/zero/";
constexpr std::string_view kSuffix = ".pt";

class UniversalPlanner {
 public:
  UniversalPlanner(const DeepSpeedModel& model, ForeignCheckpoint* plan)
      : model_(model), plan_(plan) {
    for (const auto& group : model.groups) {
      for (const NamedShape& parameter : group) shapes_[parameter.name] = parameter.shape;
    }
  }

  // Adds the trained parameters to the plan and returns their names. Buffers, frozen parameters and
  // aliases also have a folder, but no optimizer state. Their names are in `in_module`, and they
  // are read from the model file instead.
  std::set<std::string> AddParameters(const std::set<std::string>& in_module) {
    std::set<std::string> added;
    const std::string zero = plan_->checkpoint.folder + std::string(kZero);
    for (const std::string& name : FolderNames(zero)) {
      if (!std::filesystem::is_directory(zero + name)) continue;
      const auto files = FolderNames(zero + name);
      if (in_module.contains(name) && !shapes_.contains(name) && files.size() < 2) continue;
      if (AddParameter(name, files)) added.insert(name);
    }
    for (const auto& [name, shape] : shapes_) {
      if (!added.contains(name)) plan_->missing.push_back("zero/" + name + "/fp32.pt");
    }
    return added;
  }

  // Reads the optimizer's values that are the same for all parameters. If their file is missing,
  // adds a note.
  void ReadOptimizer() {
    const std::string name = "zero/optimizer_state.pt";
    const std::string path = plan_->checkpoint.folder + "/" + name;
    if (!std::filesystem::exists(path)) {
      plan_->missing.push_back(name);
      return;
    }
    AddFile(name, plan_);
    const TorchArchive archive(path);
    const ArchiveField root(archive);
    const auto groups = root.Find("param_groups");
    std::optional<ArchiveField> state;
    if (const auto inner = root.Find("optimizer_state_dict")) {
      if (const auto states = inner->Find("state")) state = states->Find(0);
    }
    ReadUpdates(state, groups, model_, plan_);
    if (step_) {
      plan_->checkpoint.manifest.optimizer_updates = *step_;
      if (!model_.has_schedule) plan_->checkpoint.manifest.scheduled_updates = *step_;
    }
    if (groups) ReadParamGroups(*groups, plan_);
    if (const auto scaler = root.Find("loss_scaler")) ReadLossScaler(*scaler, model_, plan_);
  }

 private:
  bool AddParameter(const std::string& name, const std::vector<std::string>& files) {
    const std::string relative = "zero/" + name;
    const std::string folder = plan_->checkpoint.folder + "/" + relative;
    bool has_weights = false;
    for (const std::string& file : files) {
      if (!file.ends_with(kSuffix)) continue;
      const std::string key = file.substr(0, file.size() - kSuffix.size());
      AddFile(relative + "/" + file, plan_);
      const TorchArchive archive(folder + "/" + file);
      if (key == "step") {
        ReadStep(archive);
        continue;
      }
      has_weights |= key == "fp32";
      AddTensor(key == "fp32" ? name : NameOfState(key, name), name, archive);
    }
    return has_weights;
  }

  void ReadStep(const TorchArchive& archive) {
    const ArchiveField root(archive);
    const int64_t step = root.Updates();
    if (step_ && *step_ != step) {
      root.Fail("is update " + std::to_string(step) + ", but another parameter's is " +
                std::to_string(*step_));
    }
    step_ = step;
  }

  void AddTensor(const std::string& record, const std::string& name, const TorchArchive& archive) {
    const ArchiveField root(archive);
    const ArchiveField field = root.IsDict() ? root.At("param") : root;
    const ArchivedTensor tensor = field.Tensor();
    const auto shape = shapes_.find(name);
    if (root.IsDict() || shape == shapes_.end()) {
      AddWhole(record, archive.path(), tensor, plan_);
      return;
    }
    if (NumElements(tensor.shape) != NumElements(shape->second) || !tensor.stride.empty()) {
      field.Fail("has not the elements of " + Quoted(name) + " in param_shapes");
    }
    AddPieces(record, tensor.dtype, shape->second,
              {{archive.path(), tensor.begin, NumElements(tensor.shape).value()}}, plan_);
  }

  const DeepSpeedModel& model_;
  ForeignCheckpoint* plan_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::optional<int64_t> step_;
};

std::set<std::string> NamesInModule(const TorchArchive& archive) {
  std::set<std::string> names;
  for (const auto& entry : ArchiveField(archive).At("module").Entries()) names.insert(entry.first);
  return names;
}

}  // namespace

bool IsUniversalFolder(const std::string& folder) {
  const std::string zero = folder + std::string(kZero);
  std::error_code error;
  if (!std::filesystem::is_directory(zero, error)) return false;
  for (const std::string& name : FolderNames(zero)) {
    if (std::filesystem::exists(zero + name + "/fp32.pt", error)) return true;
  }
  return false;
}

ForeignCheckpoint PlanUniversal(const std::string& folder, const std::vector<std::string>& names) {
  ForeignCheckpoint plan;
  plan.kind = ForeignKind::kUniversal;
  plan.checkpoint.folder = folder;
  const DeepSpeedFiles files = SortDeepSpeedFiles(names, folder);
  const std::string model_file = files.first_model();
  if (model_file.empty()) {
    plan.missing.push_back("mp_rank_00_model_states.pt");
    return plan;
  }
  const TorchArchive archive(folder + "/" + model_file);
  const DeepSpeedModel model = ReadDeepSpeedModel(archive, &plan);
  plan.checkpoint.manifest.zero_stage = model.stage;
  plan.checkpoint.manifest.world_size = model.world_size;
  UniversalPlanner planner(model, &plan);
  const auto added = planner.AddParameters(NamesInModule(archive));
  planner.ReadOptimizer();
  if (files.partitioned()) {
    AddModelFilesOfStage3(model, files, model.world_size, &plan);
  } else {
    AddFile(model_file, &plan);
  }
  if (files.tensor_parallel.empty()) {
    AddDeepSpeedModule(archive, model, added, &plan);
  } else {
    plan.notes.push_back(
        "Not read, as tensor parallelism cut it: what is in the model files only, such as buffers "
        "and frozen parameters.");
  }
  return plan;
}

}  // namespace dslaunch
