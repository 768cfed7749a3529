#include "trainer/program/checkpoint_convert.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "trainer/base/byte_progress.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/copy_checkpoint.h"
#include "trainer/checkpoint/state.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/checkpoint/write_journal.h"
#include "trainer/config/recipe.h"
#include "trainer/foreign/write_distributed.h"
#include "trainer/foreign/write_universal.h"
#include "trainer/program/checkpoint_source.h"
#include "trainer/shards/shards.h"
#include "trainer/weights/adapter_files.h"
#include "trainer/weights/adapter_record.h"
#include "trainer/weights/config_json.h"
#include "trainer/weights/convert_weights.h"
#include "trainer/weights/merge_adapters.h"
#include "trainer/weights/pretrained.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void RefuseExisting(const std::string& path) {
  throw TrainError(ExitCode::kUsage, path +
                                         " is there already; give another folder, or --force to "
                                         "overwrite it");
}

void RefuseExistingOf(const std::string& out, const std::vector<const char*>& names) {
  for (const char* name : names) {
    std::error_code ignored;
    if (fs::exists(out + "/" + name, ignored)) RefuseExisting(out + "/" + name);
  }
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Prints the aliases and other contents of the source that were not written.
void PrintNotes(const CheckpointSource& source) {
  if (!source.foreign) return;
  for (const auto& [alias, name] : source.foreign->aliases) {
    PrintNames(alias + " is not written: it shares " + name);
  }
  for (const std::string& note : source.foreign->notes) PrintNames("note: " + note);
}

// Returns the folders that may contain config.json and the tokenizer: the checkpoint's folder, and
// its parent, because DeepSpeed and accelerate save checkpoints into a subfolder.
std::vector<std::string> FoldersBeside(const CheckpointSource& source) {
  std::error_code ignored;
  const fs::path path = fs::weakly_canonical(source.path, ignored);
  if (!fs::is_directory(path, ignored)) return {path.parent_path()};
  return {path, path.parent_path()};
}

// Writes config.json, or copies it together with the tokenizer's files. Returns a clause about
// these files for the line that is printed.
std::string WriteModelFiles(const CheckpointSource& source, const ConvertedWeights& weights,
                            const std::string& out) {
  if (source.foreign) {
    const std::vector<std::string> copied = CopyModelFiles(FoldersBeside(source), out);
    return copied.empty() ? "" : "; copied " + Joined(copied);
  }
  const std::string& model = source.checkpoint.manifest.model;
  if (model.empty()) return "; no config.json, because the checkpoint is not from a recipe";
  std::vector<at::ScalarType> dtypes;
  for (const TensorHeader& header : weights.headers) {
    dtypes.push_back(ScalarTypeOf(header.dtype).value_or(at::kFloat));
  }
  WriteConfigJson(ParseModelSection(model, source.path + "/" + kManifestFile), dtypes, out);
  return "";
}

void WriteSafetensors(const CheckpointSource& source, const std::string& out,
                      const ConvertOptions& options) {
  WeightOutput output = {.folder = out,
                         .work = IdentityOf(source) + " dtype " +
                                 (options.dtype ? SafetensorsDtype(*options.dtype) : "as saved") +
                                 " prefix " + options.source.prefix + " key " + options.source.key};
  if (!options.force && !IsInterrupted(output)) {
    RefuseExistingOf(out, {kWeightsFile, kWeightIndexFile, kConfigJson});
  }
  RequireWhole(source);
  const ConvertedWeights weights = PlanWeights(source.checkpoint, options.dtype);
  if (weights.headers.empty()) RefuseInput(source.path + " has no weights");
  std::string files;
  output.on_published = [&] { files = WriteModelFiles(source, weights, out); };
  {
    ByteProgress progress(out + ": ", weights.bytes);
    output.on_kept = [&](uint64_t bytes) { progress.Skip(bytes); };
    ConvertWeights(source.checkpoint, weights, output,
                   [&](uint64_t bytes) { progress.Add(bytes); });
  }
  const size_t count = weights.headers.size();
  PrintNames(Count(count, "tensor") + " of " + source.path +
             (count == 1 ? " is written to " : " are written to ") + out + files);
}

// Writes the adapters of a checkpoint in PEFT's format, or the base weights with the adapters
// merged into them.
void WriteLora(const CheckpointSource& source, const std::string& out,
               const ConvertOptions& options) {
  const Manifest& manifest = source.checkpoint.manifest;
  const std::string place = source.path + "/" + kManifestFile;
  const AdapterRecord record = ParseAdapterRecord(manifest.adapters, place);
  const ModelConfig model = ParseModelSection(manifest.model, place);
  if (!options.force) {
    RefuseExistingOf(out, options.merge_lora
                              ? std::vector{kWeightsFile, kWeightIndexFile, kConfigJson}
                              : std::vector{kAdapterWeightsFile, kAdapterConfigFile});
  }
  RequireWhole(source);
  if (options.merge_lora) {
    MergeAdapters(source.checkpoint, record, model, options.dtype, out);
    return PrintNames("the adapters of " + source.path + ", merged into " + record.base +
                      ", are written to " + out);
  }
  StoredTensors stored(source.checkpoint);
  std::vector<NamedTensor> adapters;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!IsOfModel(tensor) || !IsAdapterTensor(tensor.name)) continue;
    const at::Tensor values = stored.ReadWhole(tensor);
    adapters.push_back({tensor.name, options.dtype ? values.to(*options.dtype) : values});
  }
  WriteAdapters(adapters, record.lora, model, record.base, out);
  PrintNames(Count(adapters.size(), "tensor") + " of the adapters of " + source.path +
             " are written to " + out);
}

void WriteDslaunch(const CheckpointSource& source, const std::string& out, bool force) {
  RequireWhole(source);
  std::string tag;
  {
    ByteProgress progress(out + ": ", TensorBytesOf(source.checkpoint));
    tag = CopyCheckpoint(source.checkpoint, out,
                         {.work = IdentityOf(source),
                          .force = force,
                          .on_written = [&](uint64_t bytes) { progress.Add(bytes); },
                          .on_kept = [&](uint64_t bytes) { progress.Skip(bytes); }});
  }
  PrintNames(source.path + " is written to " + out + "/" + tag + "; train with --checkpoint_dir " +
             ShellWord(out) + " to resume from it");
}

// Writes the folder `out` under a temporary name, and renames it when it is complete. Throws kUsage
// if `out` exists.
void WriteFolder(const CheckpointSource& source, const std::string& out,
                 const std::function<void(const std::string& folder, const ProgressFn&)>& write) {
  std::error_code error;
  if (fs::exists(out, error)) {
    throw TrainError(ExitCode::kUsage, out + " is there already; give another folder");
  }
  RequireWhole(source);
  fs::path path = fs::absolute(out);
  if (!path.has_filename()) path = path.parent_path();
  fs::create_directories(path.parent_path(), error);
  const std::string temporary =
      path.parent_path() / (".dslaunch-convert-" + path.filename().string());
  fs::remove_all(temporary, error);  // left by an interrupted conversion
  const uint64_t bytes = TensorBytesOf(source.checkpoint);
  CheckRoom(path.parent_path(), bytes);
  {
    ByteProgress progress(out + ": ", bytes);
    uint64_t last = 0;
    try {
      write(temporary,
            [&](uint64_t done, uint64_t) { progress.Add(done - std::exchange(last, done)); });
    } catch (const TrainError& failure) {
      fs::remove_all(temporary, error);
      throw UnfinishedWrite(failure, bytes, false);
    }
  }
  fs::rename(temporary, path, error);
  if (error) throw TrainError(ExitCode::kIo, out + ": cannot be created: " + error.message());
  SyncFolder(path.parent_path());
  PrintNames(source.path + " is written to " + out);
}

void WriteDcp(const Checkpoint& checkpoint, const std::string& folder, const ProgressFn& progress) {
  StoredTensors stored(checkpoint);
  const auto read = [&](const TensorRecord& tensor, int64_t start, int64_t stop, void* to) {
    stored.Read(tensor, Slice(Shard::Whole(NumElements(tensor.shape).value()), start, stop), to);
  };
  WriteDistributed(checkpoint.manifest, read, folder, progress);
}

void CheckOptions(const std::string& path, const ConvertOptions& options) {
  const auto refuse = [](const std::string& problem) {
    throw TrainError(ExitCode::kUsage, problem);
  };
  if (options.dtype && options.to != ConvertKind::kSafetensors) {
    refuse("--dtype is for --to safetensors; other forms keep the data types");
  }
  if (HasManifest(path) && !(options.source.key + options.source.prefix).empty()) {
    refuse(path + " is a checkpoint of dslaunch; --key and --prefix are for those of others");
  }
}

}  // namespace

void Convert(const std::string& path, const std::string& out, const ConvertOptions& options) {
  CheckOptions(path, options);
  const CheckpointSource source = OpenSource(path, options.source);
  if (options.merge_lora && source.checkpoint.manifest.adapters.empty()) {
    RefuseInput(path + " holds no adapters to merge; leave --merge_lora out");
  }
  switch (options.to) {
    case ConvertKind::kSafetensors:
      if (source.checkpoint.manifest.adapters.empty()) {
        WriteSafetensors(source, out, options);
      } else {
        WriteLora(source, out, options);
      }
      break;
    case ConvertKind::kDslaunch:
      WriteDslaunch(source, out, options.force);
      break;
    case ConvertKind::kUniversal:
      WriteFolder(source, out, [&](const std::string& folder, const ProgressFn& progress) {
        WriteUniversal(source.checkpoint, folder, progress);
      });
      break;
    case ConvertKind::kDistributed:
      WriteFolder(source, out, [&](const std::string& folder, const ProgressFn& progress) {
        WriteDcp(source.checkpoint, folder, progress);
      });
  }
  PrintNotes(source);
}

}  // namespace dslaunch
