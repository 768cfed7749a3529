#include "trainer/foreign/deepspeed_zero.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/deepspeed_files.h"
#include "trainer/foreign/deepspeed_whole.h"
#include "trainer/foreign/plan_tensors.h"
#include "trainer/foreign/zero_parts.h"

namespace dslaunch {
namespace {

constexpr int64_t kMaxRanks = 1 << 16;

// Throws if `cut` differs from param_slice_mappings, which DeepSpeed saves since version 0.7.
void CheckMapping(const ArchiveField& mapping, const RankCut& cut) {
  for (const Fragment& fragment : cut.fragments) {
    const ArchiveField address = mapping.At(fragment.name);
    if (address.At("start").Count() != fragment.start ||
        address.At("numel").Count() != fragment.elements) {
      address.Fail("differs from param_shapes, which give start " + std::to_string(fragment.start) +
                   " and numel " + std::to_string(fragment.elements));
    }
  }
}

// Returns the items of a tuple or list; empty if the value is missing or has another type.
std::vector<ArchiveField> ItemsIfList(const std::optional<ArchiveField>& field) {
  return field && field->IsSequence() ? field->Items() : std::vector<ArchiveField>();
}

std::vector<int64_t> Counts(const ArchiveField& list) {
  std::vector<int64_t> counts;
  for (const ArchiveField& item : list.Items()) counts.push_back(item.Count());
  return counts;
}

// Plans one checkpoint of ZeRO stages 1 to 3.
class ZeroPlanner {
 public:
  ZeroPlanner(const DeepSpeedModel& model, std::map<int64_t, std::string> files,
              ForeignCheckpoint* plan)
      : model_(model), files_(std::move(files)), parts_(model.groups), plan_(plan) {}

  // Adds the tensors of the optimizer files to the plan. Returns the names of the parameters whose
  // weights these files contain.
  std::set<std::string> Plan(bool bf16) {
    if (files_.empty()) {
      world_size_ = std::max<int64_t>(1, model_.world_size);
    } else {
      for (const auto& [rank, name] : files_) {
        if (rank != files_.begin()->first && rank >= world_size_) break;
        ReadRank(rank, rank == files_.begin()->first);
      }
      IgnoreOtherSaves();
    }
    const auto missing = RanksWithout(files_, world_size_);
    for (const int64_t rank : missing) {
      plan_->missing.push_back(DeepSpeedOptimizerFile(rank, bf16));
    }
    for (const std::string& key : unread_) {
      plan_->notes.push_back("Not read, as it has not a number for each weight: " + Quoted(key) +
                             " of the optimizer's state.");
    }
    plan_->checkpoint.manifest.world_size = world_size_;
    if (files_.empty()) return {};
    return parts_.Finish(!missing.empty(), plan_);
  }

  int64_t world_size() const { return world_size_; }

 private:
  // Reads the file of one rank. Call this for the ranks in ascending order. `first` is true for the
  // first rank, whose file also supplies the values that all ranks share.
  void ReadRank(int64_t rank, bool first) {
    const std::string& name = files_.at(rank);
    const TorchArchive archive(plan_->checkpoint.folder + "/" + name);
    AddFile(name, plan_);
    const ArchiveField state = ArchiveField(archive).At("optimizer_state_dict");
    CheckIsOfThisSave(state, rank, first);
    if (model_.stage == 3) {
      ReadStage3(state, rank, first);
    } else {
      ReadStage12(state, rank, first);
    }
  }

  void CheckIsOfThisSave(const ArchiveField& state, int64_t rank, bool first) {
    // DeepSpeed's optimizer for bf16 weights with fp32 gradients does not save the stage (1), so
    // the stage is optional.
    if (const auto stage = state.Find("zero_stage")) {
      if (stage->EnumValue() != model_.stage) {
        stage->Fail("is " + std::to_string(stage->EnumValue()) + ", but the model file's is " +
                    std::to_string(model_.stage));
      }
    }
    if (const auto groups = state.Find("ds_zero_partition_groups")) {
      groups->Fail("is not empty: experts (MoE) are not read");
    }
    const ArchiveField partitions = state.At("partition_count");
    const std::vector<int64_t> counts =
        partitions.IsSequence() ? Counts(partitions) : std::vector{partitions.Count()};
    const int64_t count = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    if (count <= rank || count > kMaxRanks) partitions.Fail("is not a number of ranks");
    if (first) {
      world_size_ = count;
    } else if (count != world_size_) {
      partitions.Fail("is " + std::to_string(count) + ", but " + std::to_string(world_size_) +
                      " in " + files_.begin()->second + ": they are of different saves");
    }
  }

  void ReadStage12(const ArchiveField& state, int64_t rank, bool first) {
    const ArchiveField field = state.At("single_partition_of_fp32_groups");
    const auto groups = field.Items();
    CheckGroups(field, groups.size());
    const auto paddings = ItemsIfList(state.Find("param_alignment_paddings"));
    const auto mappings = ItemsIfList(state.Find("param_slice_mappings"));
    const ArchiveField base = state.At("base_optimizer_state");
    // With elastic_checkpoint, base_optimizer_state is a list of states, so each group reads its
    // own.
    const auto listed = ItemsIfList(base);
    for (size_t i = 0; i < groups.size(); ++i) {
      std::optional<ArchiveField> of_group;
      if (i < listed.size()) of_group = listed[i];
      if (base.IsDict()) of_group = base.At("state").Find(static_cast<int64_t>(i));
      const RankCut cut = CutGroup(
          model_.groups[i], i < paddings.size() ? Counts(paddings[i]) : std::vector<int64_t>(),
          rank, world_size_);
      // DeepSpeed's mapping is wrong if round_robin_gradients reorders the parameters, so it is not
      // checked then.
      if (i < mappings.size() && !model_.reordered) CheckMapping(mappings[i], cut);
      parts_.Add(cut, FlatTensorsOf(groups[i], of_group, &unread_), groups[i]);
      if (i == 0) ReadProgress(state, of_group, base.Find("param_groups"), first);
    }
  }

  void ReadStage3(const ArchiveField& state, int64_t rank, bool first) {
    const ArchiveField field = state.At("fp32_flat_groups");
    const auto groups = field.Items();
    CheckGroups(field, groups.size());
    const ArchiveField inner = state.At("optimizer_state_dict");
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto of_group = inner.At("state").Find(static_cast<int64_t>(i));
      parts_.Add(CutEachParameter(model_.groups[i], rank, world_size_),
                 FlatTensorsOf(groups[i], of_group, &unread_), groups[i]);
      if (i == 0) ReadProgress(state, of_group, inner.Find("param_groups"), first);
    }
  }

  void CheckGroups(const ArchiveField& groups, size_t count) const {
    if (count == model_.groups.size()) return;
    groups.Fail("has " + std::to_string(count) + " groups, but param_shapes has " +
                std::to_string(model_.groups.size()));
  }

  void ReadProgress(const ArchiveField& state, const std::optional<ArchiveField>& of_group,
                    const std::optional<ArchiveField>& param_groups, bool first) {
    const int64_t step = StepOf(of_group, param_groups);
    if (!first) {
      if (step == step_) return;
      state.Fail("is of update " + std::to_string(step) + ", that of " + files_.begin()->second +
                 " of update " + std::to_string(step_) + ": they are of different saves");
    }
    step_ = step;
    ReadUpdates(of_group, param_groups, model_, plan_);
    if (param_groups) ReadParamGroups(*param_groups, plan_);
    if (const auto scaler = state.Find("loss_scaler")) ReadLossScaler(*scaler, model_, plan_);
  }

  // Ignores files of ranks beyond the world size, which an earlier save with more ranks has left
  // under the same tag.
  void IgnoreOtherSaves() {
    const auto others = files_.lower_bound(world_size_);
    if (others == files_.end()) return;
    plan_->notes.push_back("Not read, as the checkpoint is of " + std::to_string(world_size_) +
                           " ranks: " + others->second + " and files of higher ranks, if any.");
    files_.erase(others, files_.end());
  }

  const DeepSpeedModel& model_;
  std::map<int64_t, std::string> files_;
  ZeroParts parts_;
  ForeignCheckpoint* plan_;
  int64_t world_size_ = 0;
  int64_t step_ = -1;
  std::set<std::string> unread_;  // keys of the optimizer's state that were not read
};

void RefuseUnreadLayouts(const std::string& folder, const std::vector<std::string>& names,
                         const DeepSpeedFiles& files) {
  if (!files.tensor_parallel.empty()) {
    RefuseInput(folder + "/" + files.tensor_parallel +
                ": DeepSpeed saved it with tensor parallelism, whose layout is not read; convert "
                "the checkpoint with DeepSpeed's ds_to_universal and give the folder that it "
                "writes");
  }
  if (std::binary_search(names.begin(), names.end(), "offloaded_tensors")) {
    RefuseInput(folder +
                "/offloaded_tensors: it has what DeepSpeed offloaded to NVMe, which is not read");
  }
}

}  // namespace

ForeignCheckpoint PlanZero(const std::string& folder, const std::vector<std::string>& names) {
  ForeignCheckpoint plan;
  plan.kind = ForeignKind::kDeepSpeed;
  plan.checkpoint.folder = folder;
  const DeepSpeedFiles files = SortDeepSpeedFiles(names, folder);
  RefuseUnreadLayouts(folder, names, files);
  const std::string model_file = files.first_model();
  if (model_file.empty()) {
    plan.missing.push_back("mp_rank_00_model_states.pt");
    return plan;
  }
  const TorchArchive archive(folder + "/" + model_file);
  const DeepSpeedModel model = ReadDeepSpeedModel(archive, &plan);
  Manifest& manifest = plan.checkpoint.manifest;
  manifest.zero_stage = model.stage;
  if (files.partitioned() != (model.stage == 3)) {
    RefuseInput(archive.path() + ": its name is not that of a file of ZeRO stage " +
                std::to_string(model.stage) + ", which its ds_config has");
  }
  std::set<std::string> trained;
  if (model.stage == 0) {
    AddFile(model_file, &plan);
    trained = AddWholeOptimizer(archive, model, &plan);
  } else {
    bool bf16 = model.bf16;
    if ((bf16 ? files.bf16_optimizer : files.optimizer).empty() &&
        !(bf16 ? files.optimizer : files.bf16_optimizer).empty()) {
      bf16 = !bf16;
    }
    ZeroPlanner planner(model, bf16 ? files.bf16_optimizer : files.optimizer, &plan);
    trained = planner.Plan(bf16);
    if (files.partitioned()) {
      AddModelFilesOfStage3(model, files, planner.world_size(), &plan);
    } else {
      AddFile(model_file, &plan);
    }
  }
  AddDeepSpeedModule(archive, model, trained, &plan);
  return plan;
}

}  // namespace dslaunch
