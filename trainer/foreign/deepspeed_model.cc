#include "trainer/foreign/deepspeed_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/plan_tensors.h"

namespace dslaunch {
namespace {

// Lists the keys of a model file that are read or that readers do not need.
constexpr std::string_view kKnownKeys[] = {"module",
                                           "buffer_names",
                                           "optimizer",
                                           "param_shapes",
                                           "frozen_param_shapes",
                                           "shared_params",
                                           "frozen_param_fragments",
                                           "lr_scheduler",
                                           "skipped_steps",
                                           "global_steps",
                                           "global_samples",
                                           "dp_world_size",
                                           "mp_world_size",
                                           "checkpoint_parallel_dimensions",
                                           "ds_config",
                                           "ds_version",
                                           "sparse_tensor_module_names",
                                           "csr_tensor_module_names",
                                           "universal_checkpoint_info",
                                           "ds_autoep_layers",
                                           "autoep_layers"};

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<NamedShape> NamedShapes(const ArchiveField& shapes) {
  std::vector<NamedShape> result;
  for (const auto& [name, shape] : shapes.Entries()) result.push_back({name, shape.Shape()});
  return result;
}

// Returns the int at `key` of a section of ds_config; `otherwise` if the key is missing or its
// value has another type.
int64_t ConfiguredInt(const std::optional<ArchiveField>& section, std::string_view key,
                      int64_t otherwise) {
  const auto value = section ? section->Find(key) : std::nullopt;
  return value ? value->value().Int().value_or(otherwise) : otherwise;
}

bool ConfiguredBool(const std::optional<ArchiveField>& section, std::string_view key,
                    bool otherwise) {
  const auto value = section ? section->Find(key) : std::nullopt;
  return value ? value->value().Bool().value_or(otherwise) : otherwise;
}

std::optional<ArchiveField> FindDict(const std::optional<ArchiveField>& parent,
                                     std::string_view key) {
  auto section = parent ? parent->Find(key) : std::nullopt;
  return section && section->IsDict() ? section : std::nullopt;
}

// Returns dslaunch's name for the optimizer in ds_config; DeepSpeed's name if dslaunch has no such
// optimizer. Throws kBadInput for optimizers whose state is not supported.
std::string OptimizerName(const ArchiveField& type, const std::optional<ArchiveField>& params) {
  const std::string name = type.Text();
  const std::string lower = LowerCase(name);
  for (const char* refused : {"onebitadam", "onebitlamb", "zerooneadam"}) {
    if (lower == refused) type.Fail("is " + Truncate(name) + ", whose state is not read");
  }
  // DeepSpeed's "Adam" is AdamW unless adam_w_mode is false, so the mode decides.
  if (lower == "adam") return ConfiguredBool(params, "adam_w_mode", true) ? "AdamW" : "Adam";
  for (const char* known : {"AdamW", "SGD", "Adagrad", "RMSprop", "Lamb", "Lion"}) {
    if (lower == LowerCase(known)) return known;
  }
  return Truncate(name);
}

void ReadConfiguration(const std::optional<ArchiveField>& config, DeepSpeedModel* model,
                       Manifest* manifest) {
  const auto fp16 = FindDict(config, "fp16");
  auto bf16 = FindDict(config, "bf16");
  if (!bf16) bf16 = FindDict(config, "bfloat16");
  model->bf16 = ConfiguredBool(bf16, "enabled", false);
  manifest->dtype = model->bf16 ? "bf16" : ConfiguredBool(fp16, "enabled", false) ? "fp16" : "fp32";
  model->hysteresis = std::max<int64_t>(1, ConfiguredInt(fp16, "hysteresis", model->hysteresis));
  const auto zero = FindDict(config, "zero_optimization");
  model->stage = ConfiguredInt(zero, "stage", 0);
  model->reordered = ConfiguredBool(zero, "round_robin_gradients", false);
  const auto optimizer = FindDict(config, "optimizer");
  if (const auto type = optimizer ? optimizer->Find("type") : std::nullopt) {
    manifest->optimizer = OptimizerName(*type, FindDict(optimizer, "params"));
  }
  const int64_t accumulation =
      std::clamp<int64_t>(ConfiguredInt(config, "gradient_accumulation_steps", 1), 1, 1 << 20);
  const int64_t micro_batch =
      std::clamp<int64_t>(ConfiguredInt(config, "train_micro_batch_size_per_gpu", 0), 0, 1 << 20);
  manifest->train_batch_size = std::max<int64_t>(
      0, ConfiguredInt(config, "train_batch_size", micro_batch * accumulation * model->world_size));
  if (manifest->position.step < (int64_t{1} << 40)) {
    manifest->micro_steps = manifest->position.step * accumulation;
  }
}

void RefuseOtherParallelism(const ArchiveField& root) {
  for (const char* key : {"ds_autoep_layers", "autoep_layers"}) {
    const auto layers = root.Find(key);
    if (layers && layers->value().size() > 0) {
      layers->Fail("is not empty: experts (MoE) are not read");
    }
  }
  if (const auto dimensions = root.Find("checkpoint_parallel_dimensions")) {
    const auto stages = dimensions->Find("pp_degree");
    if (stages && stages->Count() > 1) stages->Fail("is above 1: pipelines are not read");
  }
}

// Keeps the strings among the program's own values, and lists the names of its other values in a
// note.
void ReadClientState(const ArchiveField& root, ForeignCheckpoint* plan) {
  std::string unread;
  for (const auto& [key, value] : root.Entries()) {
    if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) != std::end(kKnownKeys) ||
        value.value().IsNone()) {
      continue;
    }
    if (const auto text = value.value().String()) {
      plan->checkpoint.manifest.client_state[key] = *text;
    } else {
      unread += (unread.empty() ? "" : ", ") + Quoted(key);
    }
  }
  if (!unread.empty()) plan->notes.push_back("Not read, as the program saved it: " + unread + ".");
}

void ReadScheduler(const ArchiveField& root, DeepSpeedModel* model, Manifest* manifest) {
  const auto scheduler = root.Find("lr_scheduler");
  if (!scheduler) return;
  model->has_schedule = true;
  // DeepSpeed counts updates from -1 and PyTorch counts them from 0, so DeepSpeed's number is
  // increased.
  if (const auto last = scheduler->Find("last_batch_iteration")) {
    const double number = last->Number();
    if (!(number >= -1 && number < 1e15)) last->Fail("is not a count of updates");
    manifest->scheduled_updates = static_cast<int64_t>(number) + 1;
  } else if (const auto epoch = scheduler->Find("last_epoch")) {
    manifest->scheduled_updates = epoch->Count();
  } else {
    model->has_schedule = false;
  }
}

// Detects aliases: state_dict() contains a tied parameter under each of its names.
class ModuleTensors {
 public:
  ModuleTensors(const ArchiveField& root, ForeignCheckpoint* plan) : plan_(plan) {
    const auto shared = root.Find("shared_params");
    if (!shared) return;
    for (const auto& [alias, name] : shared->Entries()) plan_->aliases[alias] = name.Text();
  }

  // Returns whether `name` is an alias of another tensor. Records an alias that shared_params
  // lacks.
  bool IsAlias(const std::string& name, const ArchivedTensor& tensor) {
    if (plan_->aliases.contains(name)) return true;
    if (tensor.bytes == 0) return false;
    const auto [first, is_new] =
        first_.try_emplace(std::tuple(tensor.begin, tensor.shape, tensor.stride), name);
    if (!is_new) plan_->aliases[name] = first->second;
    return !is_new;
  }

 private:
  ForeignCheckpoint* plan_;
  std::map<std::tuple<uint64_t, std::vector<int64_t>, std::vector<int64_t>>, std::string> first_;
};

}  // namespace

DeepSpeedModel ReadDeepSpeedModel(const TorchArchive& archive, ForeignCheckpoint* plan) {
  const ArchiveField root(archive);
  if (!root.IsDict() || !root.Find("module")) {
    root.Fail("is not DeepSpeed's state of a model: it has no module");
  }
  RefuseOtherParallelism(root);
  DeepSpeedModel model;
  Manifest& manifest = plan->checkpoint.manifest;
  plan->program = "DeepSpeed";
  if (const auto version = root.Find("ds_version")) {
    plan->program += " " + Truncate(version->Text(), 40);
  }
  const auto count = [&root](std::string_view key) {
    const auto value = root.Find(key);
    return value ? value->Count() : 0;
  };
  manifest.position.step = count("global_steps");
  manifest.samples_seen = count("global_samples");
  manifest.skipped_steps = count("skipped_steps");
  model.world_size = count("dp_world_size");
  if (model.world_size > 1 << 16) root.At("dp_world_size").Fail("is too large");
  ReadConfiguration(FindDict(root, "ds_config"), &model, &manifest);
  if (const auto groups = root.Find("param_shapes")) {
    for (const ArchiveField& group : groups->Items()) model.groups.push_back(NamedShapes(group));
  }
  if (const auto frozen = root.Find("frozen_param_shapes")) model.frozen = NamedShapes(*frozen);
  ReadScheduler(root, &model, &manifest);
  ReadClientState(root, plan);
  return model;
}

void AddDeepSpeedModule(const TorchArchive& archive, const DeepSpeedModel& model,
                        const std::set<std::string>& trained, ForeignCheckpoint* plan) {
  const ArchiveField root(archive);
  ModuleTensors tensors(root, plan);
  std::set<std::string> elsewhere;
  if (model.stage == 3) {
    for (const NamedShape& frozen : model.frozen) elsewhere.insert(frozen.name);
    for (const auto& group : model.groups) {
      for (const NamedShape& parameter : group) elsewhere.insert(parameter.name);
    }
  }
  std::set<std::string> buffers;
  if (const auto names = root.Find("buffer_names")) {
    for (const ArchiveField& name : names->Items()) buffers.insert(name.Text());
  }
  for (const auto& [name, field] : root.At("module").Entries()) {
    const auto tensor = field.FindTensor();
    if (!tensor) {
      plan->notes.push_back("Not read, as it is not a tensor: " + Quoted(field.key()) + ".");
      continue;
    }
    if (tensors.IsAlias(name, *tensor) || trained.contains(name) || elsewhere.contains(name)) {
      continue;
    }
    if (model.stage == 3 && tensor->bytes == 0 && !buffers.contains(name)) {
      plan->notes.push_back(Quoted(name) + " has no elements of its own in the checkpoint.");
      continue;
    }
    AddWhole(name, archive.path(), *tensor, plan);
  }
}

void ReadUpdates(const std::optional<ArchiveField>& parameter_state,
                 const std::optional<ArchiveField>& param_groups, const DeepSpeedModel& model,
                 ForeignCheckpoint* plan) {
  Manifest& manifest = plan->checkpoint.manifest;
  const int64_t step = StepOf(parameter_state, param_groups);
  manifest.optimizer_updates =
      step >= 0 ? step : std::max<int64_t>(0, manifest.position.step - manifest.skipped_steps);
  if (!model.has_schedule) manifest.scheduled_updates = manifest.optimizer_updates;
}

void ReadParamGroups(const ArchiveField& groups, ForeignCheckpoint* plan) {
  Manifest& manifest = plan->checkpoint.manifest;
  for (const ArchiveField& group : groups.Items()) {
    if (const auto rate = group.Find("lr")) manifest.learning_rates.push_back(rate->Number());
    // Only PyTorch's Adam and AdamW since version 2.7 have both keys, so the keys identify them.
    const auto decoupled = group.Find("decoupled_weight_decay");
    if (manifest.optimizer.empty() && decoupled && group.Find("betas")) {
      manifest.optimizer = decoupled->Bool() ? "AdamW" : "Adam";
    }
  }
}

int64_t StepOf(const std::optional<ArchiveField>& parameter_state,
               const std::optional<ArchiveField>& param_groups) {
  auto step = parameter_state ? parameter_state->Find("step") : std::nullopt;
  if (!step && param_groups) {
    const auto groups = param_groups->Items();
    if (!groups.empty()) step = groups[0].Find("step");
  }
  if (!step) return -1;
  return step->Updates();
}

void ReadLossScaler(const ArchiveField& scaler, const DeepSpeedModel& model,
                    ForeignCheckpoint* plan) {
  const auto scale = scaler.Find("cur_scale");
  if (!scale) return;
  LossScalerState state;
  state.scale = scale->Number();
  if (!(state.scale > 0) || !std::isfinite(state.scale)) scale->Fail("is not a scale");
  if (const auto iteration = scaler.Find("cur_iter")) {
    state.iteration = iteration->Count();
    state.hysteresis = model.hysteresis;
  }
  if (const auto last = scaler.Find("last_overflow_iter")) {
    state.last_overflow = last->value().Int().value_or(-1);
  }
  if (const auto left = scaler.Find("cur_hysteresis")) {
    state.hysteresis = std::max<int64_t>(1, left->Count());
  }
  plan->checkpoint.manifest.loss_scaler = state;
}

}  // namespace dslaunch
