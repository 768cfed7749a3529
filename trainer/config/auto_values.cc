#include "trainer/config/auto_values.h"

#include <algorithm>
#include <functional>

namespace dslaunch {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;

// Sections in which DeepSpeed itself treats "auto" as if the key were absent.
constexpr const char* kSkippedIn[] = {
    "zero_optimization", "fp16",        "bf16",   "bfloat16",        "data_types",
    "tensorboard",       "csv_monitor", "wandb",  "comet",           "comms_logger",
    "hybrid_engine",     "compile",     "timers", "tensor_parallel", "weight_quantization"};

// Returns the defaults of the Trainer (TrainingArguments) that depend on neither the model nor the
// data.
const std::vector<std::pair<const char*, json>>& TrainerDefaults() {
  static const std::vector<std::pair<const char*, json>> kDefaults = {
      {"/gradient_clipping", 1.0},
      {"/optimizer/params/betas", {0.9, 0.999}},
      {"/optimizer/params/eps", 1e-8},
      {"/optimizer/params/weight_decay", 0.0},
      {"/scheduler/params/warmup_min_lr", 0.0},
      {"/scheduler/params/warmup_num_steps", 0}};
  return kDefaults;
}

constexpr const char* kTotalSteps = "/scheduler/params/total_num_steps";
constexpr const char* kBatch[] = {"/train_batch_size", "/train_micro_batch_size_per_gpu",
                                  "/gradient_accumulation_steps"};

// Converts a pointer to a key: "/optimizer/params/lr" becomes "optimizer.params.lr".
std::string KeyOf(const Pointer& pointer) {
  std::string key;
  for (Pointer at = pointer; !at.empty(); at = at.parent_pointer()) {
    key = key.empty() ? at.back() : at.back() + "." + key;
  }
  return key;
}

bool IsAuto(const json& engine, const Pointer& pointer) {
  return engine.contains(pointer) && engine[pointer] == "auto";
}

void Erase(json& engine, const Pointer& pointer) {
  engine[pointer.parent_pointer()].erase(pointer.back());
}

// Calls `visit` with the pointer to each "auto" below `pointer`. `visit` may change or erase the
// value.
void ForEachAuto(const json& value, const Pointer& pointer,
                 const std::function<void(const Pointer&)>& visit) {
  if (value == "auto") visit(pointer);
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items()) ForEachAuto(inner, pointer / key, visit);
}

std::vector<Pointer> FindAuto(const json& engine) {
  std::vector<Pointer> found;
  ForEachAuto(engine, Pointer(), [&](const Pointer& pointer) { found.push_back(pointer); });
  std::erase(found, Pointer("/pipeline/stages"));
  return found;
}

bool GivesBatch(const json& engine) {
  return std::ranges::any_of(std::initializer_list<const char*>{kBatch[0], kBatch[1]},
                             [&](const char* key) {
                               const Pointer at(key);
                               return engine.contains(at) && engine[at].is_number();
                             });
}

// Erases "auto" from batch sizes if the other batch sizes determine them.
void ResolveBatchSizes(ResolvedAuto& result) {
  if (!GivesBatch(result.engine)) return;
  for (const char* key : kBatch) {
    if (const Pointer at(key); IsAuto(result.engine, at)) Erase(result.engine, at);
  }
}

// Replaces "auto" in the highest rate of a warm-up by the optimizer's learning rate.
void ResolveWarmupMaxLr(ResolvedAuto& result) {
  const Pointer at("/scheduler/params/warmup_max_lr");
  const Pointer lr("/optimizer/params/lr");
  if (!IsAuto(result.engine, at)) return;
  if (!result.engine.contains(lr) || !result.engine[lr].is_number()) return;
  result.engine[at] = result.engine[lr];
  result.chosen.emplace_back(KeyOf(at), result.engine[at].dump());
}

// Returns the value to report if "auto" turns this key off; "" for a key that is not turned off.
std::string OffText(const std::string& key) {
  if (key == "enabled") return "false";
  if (key == "device") return "none";
  return key == "stage" ? "0" : "";
}

// Erases "auto" in the sections where DeepSpeed ignores it.
void SkipAuto(ResolvedAuto& result) {
  for (const char* section : kSkippedIn) {
    const Pointer root = Pointer() / section;
    if (!result.engine.contains(root)) continue;
    std::vector<Pointer> found;
    ForEachAuto(result.engine[root], root, [&](const Pointer& at) { found.push_back(at); });
    for (const Pointer& at : found) {
      Erase(result.engine, at);
      const std::string off = OffText(at.back());
      if (!off.empty()) result.chosen.emplace_back(KeyOf(at), off);
    }
  }
}

}  // namespace

ResolvedAuto ResolveAuto(json engine) {
  ResolvedAuto result;
  result.engine = std::move(engine);
  if (!result.engine.is_object()) return result;
  ResolveBatchSizes(result);
  SkipAuto(result);
  for (const auto& [key, value] : TrainerDefaults()) {
    const Pointer at(key);
    if (!IsAuto(result.engine, at)) continue;
    result.engine[at] = value;
    result.chosen.emplace_back(KeyOf(at), value.dump());
  }
  ResolveWarmupMaxLr(result);
  for (const Pointer& at : FindAuto(result.engine)) {
    if (at != Pointer(kTotalSteps)) result.missing.push_back(KeyOf(at));
  }
  return result;
}

std::string AutoNotice(const std::vector<std::pair<std::string, std::string>>& chosen,
                       const std::string& origin) {
  std::string list;
  for (const auto& [key, value] : chosen) list += (list.empty() ? "" : ", ") + key + " " + value;
  return list.empty() ? "" : "\"auto\" is taken as " + list + " (" + origin + ")";
}

std::vector<std::pair<std::string, std::string>> FillAuto(json& engine, const json& defaults) {
  std::vector<std::pair<std::string, std::string>> filled;
  if (!engine.is_object() || !defaults.is_object()) return filled;
  std::vector<Pointer> places = FindAuto(engine);
  const auto is_batch = [](const Pointer& at) {
    return std::ranges::find(kBatch, at.to_string()) != std::end(kBatch);
  };
  // Batch sizes from two sources would contradict each other, so either all batch sizes are filled
  // in or none.
  if (std::erase_if(places, is_batch) > 0 && !GivesBatch(engine)) {
    for (const char* key : kBatch) places.emplace_back(key);
  }
  std::erase(places, Pointer(kTotalSteps));
  for (const Pointer& at : places) {
    if (!defaults.contains(at) || defaults[at] == "auto") continue;
    engine[at] = defaults[at];
    filled.emplace_back(KeyOf(at), engine[at].dump());
  }
  return filled;
}

}  // namespace dslaunch
