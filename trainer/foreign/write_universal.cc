#include "trainer/foreign/write_universal.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/state.h"
#include "trainer/checkpoint/tensor_blocks.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/foreign/archive/torch_archive_writer.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kDeepSpeedVersion[] = "0.19.8";  // version of DeepSpeed whose format the files have
constexpr double kUniversalVersion = 0.2;
// The number of parameter groups in the file. DeepSpeed restores at most as many groups as the file
// has and ignores the rest, so the file has more groups than any program needs.
constexpr size_t kParameterGroups = 64;
constexpr size_t kMaxFileNameBytes = 255;

bool CanBeFolder(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFileNameBytes && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// A trained parameter, and its optimizer state keyed by kind, such as "exp_avg".
struct Trained {
  const TensorRecord* weight = nullptr;
  std::map<std::string, const TensorRecord*> state;
};

struct SortedTensors {
  std::map<std::string, Trained> trained;      // trained parameters by name
  std::vector<const TensorRecord*> untrained;  // frozen parameters and buffers
  bool has_state = false;
};

SortedTensors SortTensors(const Checkpoint& checkpoint) {
  SortedTensors sorted;
  const auto refuse = [&](const TensorRecord& tensor, const std::string& problem) {
    RefuseInput(checkpoint.folder + ": tensor " + Quoted(tensor.name) + " " + problem);
  };
  std::map<std::string, const TensorRecord*> model;
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    if (IsOfModel(tensor)) model[tensor.name] = &tensor;
  }
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    const std::optional<StateName> state = SplitNameOfState(tensor.name);
    if (!state) continue;
    const std::string& kind = state->kind;
    const auto weight = model.find(state->parameter);
    if (weight == model.end()) refuse(tensor, "is the state of a parameter that is missing");
    if (weight->second->shape != tensor.shape) refuse(tensor, "has not its parameter's shape");
    if (!CanBeFolder(kind) || kind == "fp32" || kind == "step") {
      refuse(tensor, "cannot be written, because its kind is not a file name");
    }
    sorted.trained[weight->first].state[kind] = &tensor;
  }
  sorted.has_state = !sorted.trained.empty();
  for (const auto& [name, tensor] : model) {
    const std::optional<at::ScalarType> type = ScalarTypeOf(tensor->dtype);
    const bool is_trained =
        sorted.has_state ? sorted.trained.contains(name) : type && c10::isFloatingType(*type);
    if (!is_trained) {
      sorted.untrained.push_back(tensor);
      continue;
    }
    if (!CanBeFolder(name)) refuse(*tensor, "cannot be a folder, because of its name");
    sorted.trained[name].weight = tensor;
  }
  return sorted;
}

class UniversalWriter {
 public:
  UniversalWriter(const Checkpoint& checkpoint, const std::string& out, const ProgressFn& progress)
      : manifest_(checkpoint.manifest),
        stored_(checkpoint),
        sorted_(SortTensors(checkpoint)),
        tag_("global_step" + std::to_string(manifest_.position.step)),
        out_(out),
        folder_(out + "/" + tag_),
        progress_(progress) {}

  void Write() {
    CountBytes();
    MakeFolder(folder_ + "/zero");
    for (const auto& [name, trained] : sorted_.trained) {
      const std::string folder = folder_ + "/zero/" + name;
      MakeFolder(folder);
      WriteTensor(folder + "/fp32.pt", *trained.weight);
      for (const auto& [kind, tensor] : trained.state) {
        WriteTensor(folder + "/" + kind + ".pt", *tensor);
      }
      if (sorted_.has_state) WriteStep(folder + "/step.pt");
      SyncFolder(folder);
    }
    WriteOptimizer(folder_ + "/zero/optimizer_state.pt");
    WriteModel(folder_ + "/mp_rank_00_model_states.pt", sorted_.untrained);
    WriteModel(folder_ + "/zero_pp_rank_0_mp_rank_00_model_states.pt", {});
    SyncFolder(folder_ + "/zero");
    SyncFolder(folder_);
    WriteNewFile(out_ + "/latest_universal", tag_);
    SyncFolder(out_);
  }

 private:
  void CountBytes() {
    const auto add = [&](const TensorRecord& tensor) {
      all_bytes_ += static_cast<uint64_t>(NumElements(tensor.shape).value()) *
                    DtypeBytes(tensor.dtype).value();
    };
    for (const auto& [name, trained] : sorted_.trained) {
      add(*trained.weight);
      for (const auto& [kind, tensor] : trained.state) add(*tensor);
    }
    for (const TensorRecord* tensor : sorted_.untrained) add(*tensor);
  }

  static void MakeFolder(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) throw TrainError(ExitCode::kIo, path + ": cannot be made: " + error.message());
  }

  // Writes the elements of `tensor`, converted to fp32 if `to_fp32` is true.
  void WriteElements(const TensorRecord& tensor, bool to_fp32, TorchArchiveWriter& writer) {
    const auto width = static_cast<int64_t>(DtypeBytes(tensor.dtype).value());
    ForEachBlock(NumElements(tensor.shape).value(), [&](int64_t start, int64_t stop) {
      if (to_fp32) {
        const at::Tensor block = ReadBlock(stored_, tensor, at::kFloat, start, stop);
        writer.Write(block.const_data_ptr(), block.nbytes());
      } else {
        ReadBlock(stored_, tensor, start, stop, block_);
        writer.Write(block_.data(), block_.size());
      }
      done_bytes_ += static_cast<uint64_t>((stop - start) * width);
      if (progress_) progress_(done_bytes_, all_bytes_);
    });
  }

  void Finish(NewFile& file, TorchArchiveWriter& writer) {
    writer.Finish();
    file.Finish();
  }

  void WriteTensor(const std::string& path, const TensorRecord& tensor) {
    const std::optional<at::ScalarType> type = ScalarTypeOf(tensor.dtype);
    if (!type || !c10::isFloatingType(*type)) {
      RefuseInput(path + ": tensor " + Quoted(tensor.name) + " is " + tensor.dtype +
                  ", which cannot be written as fp32");
    }
    ArchivedObject object;
    object.BeginDict();
    object.String("cat_dim");
    object.Int(0);
    object.String("param");
    object.Tensor("F32", tensor.shape);
    object.EndDict();
    NewFile file(path);
    TorchArchiveWriter writer(file, "archive", std::move(object));
    WriteElements(tensor, true, writer);
    Finish(file, writer);
  }

  // Writes the number of updates as a tensor, because PyTorch's Adam requires one. DeepSpeed's own
  // optimizers accept a tensor too.
  void WriteStep(const std::string& path) {
    ArchivedObject object;
    object.Tensor("F32", {});
    WriteWithStep(path, std::move(object));
  }
  void WriteWithStep(const std::string& path, ArchivedObject object) {
    NewFile file(path);
    TorchArchiveWriter writer(file, "archive", std::move(object));
    const auto step = static_cast<float>(manifest_.optimizer_updates);
    writer.Write(&step, sizeof step);
    Finish(file, writer);
  }

  // Writes the learning rate of each group for the next update. If all rates are equal, the
  // additional groups of kParameterGroups get that rate too.
  void PutGroups(ArchivedObject& object) const {
    const std::vector<double>& rates =
        manifest_.next_rates.empty() ? manifest_.learning_rates : manifest_.next_rates;
    const bool are_equal =
        std::adjacent_find(rates.begin(), rates.end(), std::not_equal_to<>()) == rates.end();
    object.BeginList();
    for (size_t i = 0; i < std::max(kParameterGroups, rates.size()); ++i) {
      object.BeginDict();
      if (i < rates.size() || (are_equal && !rates.empty())) {
        object.String("lr");
        object.Double(rates[std::min(i, rates.size() - 1)]);
      }
      object.EndDict();
    }
    object.EndList();
  }

  // Writes the file of the optimizer's settings. Stages 1 and 2 read param_groups and stage 3 reads
  // optimizer_state_dict, so the groups are written twice.
  void WriteOptimizer(const std::string& path) {
    ArchivedObject object;
    object.BeginDict();
    object.String("ds_version");
    object.String(kDeepSpeedVersion);
    object.String("param_groups");
    PutGroups(object);
    object.String("optimizer_state_dict");
    object.BeginDict();
    object.String("state");
    object.BeginDict();
    object.Int(0);
    object.BeginDict();
    object.String("step");
    object.Tensor("F32", {});
    object.EndDict();
    object.EndDict();
    object.String("param_groups");
    PutGroups(object);
    object.EndDict();
    object.EndDict();
    WriteWithStep(path, std::move(object));
  }

  // Writes the schedule for both kinds of schedulers. DeepSpeed's schedulers count updates from -1
  // and PyTorch's from 0, and each kind reads its own keys.
  void PutSchedule(ArchivedObject& object) const {
    object.BeginDict();
    object.String("last_batch_iteration");
    object.Int(manifest_.scheduled_updates - 1);
    object.String("last_epoch");
    object.Int(manifest_.scheduled_updates);
    object.String("_step_count");
    object.Int(manifest_.scheduled_updates + 1);
    object.EndDict();
  }

  void PutConfiguration(ArchivedObject& object) const {
    const auto enabled = [&](const char* section, bool value) {
      object.String(section);
      object.BeginDict();
      object.String("enabled");
      object.Bool(value);
      object.EndDict();
    };
    object.BeginDict();
    object.String("train_batch_size");
    object.Int(manifest_.train_batch_size);
    enabled("fp16", manifest_.dtype == "fp16");
    enabled("bf16", manifest_.dtype == "bf16");
    if (!manifest_.optimizer.empty()) {
      object.String("optimizer");
      object.BeginDict();
      object.String("type");
      object.String(manifest_.optimizer);
      object.EndDict();
    }
    object.EndDict();
  }

  void PutShapes(ArchivedObject& object) const {
    object.BeginList();
    object.BeginDict();
    for (const auto& [name, trained] : sorted_.trained) {
      object.String(name);
      object.Global("torch", "Size");
      object.BeginTuple();
      object.BeginTuple();
      for (const int64_t size : trained.weight->shape) object.Int(size);
      object.EndTuple();
      object.EndTuple();
      object.Reduce();
    }
    object.EndDict();
    object.EndList();
  }

  void WriteModel(const std::string& path, const std::vector<const TensorRecord*>& tensors) {
    ArchivedObject object;
    std::set<std::string> keys;
    const auto key = [&](const std::string& name) {
      object.String(name);
      keys.insert(name);
    };
    object.BeginDict();
    key("module");
    object.BeginDict();
    for (const TensorRecord* tensor : tensors) {
      object.String(tensor->name);
      object.Tensor(tensor->dtype, tensor->shape);
    }
    object.EndDict();
    key("param_shapes");
    PutShapes(object);
    for (const char* name : {"optimizer", "frozen_param_shapes", "frozen_param_fragments",
                             "data_sampler", "random_ltd"}) {
      key(name);
      object.None();
    }
    const std::pair<const char*, int64_t> counts[] = {
        {"global_steps", manifest_.position.step},
        {"global_samples", manifest_.samples_seen},
        {"skipped_steps", manifest_.skipped_steps},
        {"dp_world_size", std::max<int64_t>(1, manifest_.world_size)},
        {"mp_world_size", 1}};
    for (const auto& [name, count] : counts) {
      key(name);
      object.Int(count);
    }
    key("lr_scheduler");
    PutSchedule(object);
    key("ds_config");
    PutConfiguration(object);
    key("ds_version");
    object.String(kDeepSpeedVersion);
    key("universal_checkpoint_info");
    object.BeginDict();
    object.String("universal_checkpoint_version");
    object.Double(kUniversalVersion);
    object.EndDict();
    for (const auto& [name, text] : manifest_.client_state) {
      if (keys.contains(name)) continue;
      object.String(name);
      object.String(text);
    }
    object.EndDict();
    NewFile file(path);
    TorchArchiveWriter writer(file, "archive", std::move(object));
    for (const TensorRecord* tensor : tensors) WriteElements(*tensor, false, writer);
    Finish(file, writer);
  }

  const Manifest& manifest_;
  StoredTensors stored_;
  const SortedTensors sorted_;
  const std::string tag_, out_, folder_;
  const ProgressFn& progress_;
  std::vector<char> block_;
  uint64_t done_bytes_ = 0, all_bytes_ = 0;
};

}  // namespace

void WriteUniversal(const Checkpoint& checkpoint, const std::string& out,
                    const ProgressFn& progress) {
  UniversalWriter(checkpoint, out, progress).Write();
}

}  // namespace dslaunch
