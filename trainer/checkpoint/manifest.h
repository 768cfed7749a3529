// Defines manifest.json of a checkpoint: the tensors with their files, and the position of the run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/shard.h"
#include "trainer/base/durable_file.h"
#include "trainer/precision/loss_scaler.h"

namespace dslaunch {

// A slice of a tensor: the elements that `file` stores under the tensor's name.
struct TensorSlice {
  Shard shard;
  std::string file;
};

// A tensor of a checkpoint, whose name and size do not depend on the number of ranks that wrote it.
struct TensorRecord {
  std::string name;  // name of the tensor, such as "fc1.weight" or "optimizer/exp_avg/fc1.weight"
  std::string dtype;
  std::vector<int64_t> shape;
  // The slices, ordered by offset and start, all with the same pitch. Together they contain each
  // element exactly once. A file has at most one slice of a tensor.
  std::vector<TensorSlice> slices;
};

// Prefixes in the names of tensors that do not belong to the model.
inline constexpr char kOptimizerPrefix[] = "optimizer/";
inline constexpr char kGeneratorPrefix[] = "generator/cpu/";
inline constexpr char kRankPrefix[] = "rank_state/";

// Returns whether the tensor is a weight or a buffer of the model.
bool IsOfModel(const TensorRecord& tensor);
// Returns whether the tensor of this name belongs to the optimizer's state.
bool IsOfOptimizer(const std::string& name);

// Name of the optimizer's state of one parameter, in two parts.
struct StateName {
  std::string kind;       // kind of optimizer state, such as "exp_avg"
  std::string parameter;  // name of the parameter, such as "fc1.weight"
};
// Returns the name of a state tensor, such as "optimizer/exp_avg/fc1.weight".
std::string NameOfState(const std::string& kind, const std::string& parameter);
// Splits a name that NameOfState returned; nullopt for any other name.
std::optional<StateName> SplitNameOfState(const std::string& name);

struct FileRecord {
  std::string name;  // name of the file, without its folder
  FileSum sum;
};

// The position of a run in the data. Samples are counted, so the position does not depend on the
// number of ranks.
struct Position {
  int64_t step = 0;   // number of completed optimizer steps
  int64_t epoch = 0;  // number of completed passes over the data
  // Number of samples of the current pass that the ranks have consumed together.
  int64_t samples_in_epoch = 0;
};

struct Manifest {
  int64_t serial = 0;  // number of the save into the folder; the newest save has the highest number
  std::string run_id;  // id of the training run, which a resumed run keeps
  std::string job_id;  // id of the job that saved the checkpoint
  // Key of the options with which the run started, and of a digest of its recipe. Empty if there
  // were no such options, or if an older version of dslaunch saved the checkpoint.
  std::string started_by;
  Position position;
  int64_t optimizer_updates = 0;  // number of updates that the optimizer's state includes
  std::string optimizer;          // type of the optimizer, such as "AdamW"; empty if unknown
  LossScalerState loss_scaler;    // state of the loss scaler; the initial state if unknown
  uint64_t seed = 0;
  int64_t train_samples = 0;  // number of samples in the data set
  int64_t samples_seen = 0;   // number of samples that were consumed since the first step
  int64_t world_size = 0;     // number of ranks that saved the checkpoint
  int64_t train_batch_size = 0;
  // Manifests of older versions may lack the following fields.
  int64_t saved_ms = 0;         // Unix time of the save; 0 if unknown
  std::optional<bool> shuffle;  // true if the order of the data is random; nullopt if unknown
  int64_t micro_steps = 0;      // EngineCore::micro_steps() at the save
  // EngineProgress::skipped; by default the number of steps without an update.
  int64_t skipped_steps = 0;
  int64_t scheduled_updates = 0;  // EngineProgress::scheduled_updates; by default optimizer_updates
  std::vector<double> learning_rates;  // EngineProgress::learning_rates
  std::vector<double> next_rates;      // EngineReadings::GetLearningRates(); ignored by a load
  int64_t zero_stage = 0;              // stage of ZeRO in the run that saved; only for display
  int64_t pipeline_stages = 0;         // number of pipeline stages, 0 if unknown; only for display
  std::optional<double> loss;          // mean loss over the steps before the save; only for display
  std::string dtype;                   // dtype of the passes, such as "bf16"; only for display
  std::string model;  // section `model` of the recipe as JSON; empty without a recipe
  // AdapterRecord as JSON if the checkpoint's model tensors are adapters; empty for a whole model.
  std::string adapters;
  std::map<std::string, std::string> client_state;  // data of the program, as in SaveCheckpoint
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;
};

inline constexpr char kManifestFile[] = "manifest.json";

// Returns the manifest as JSON, whose first line has the checksum of the remaining text. Older
// programs read only the format "dslaunch checkpoint 1", so this format is used if every slice is
// contiguous; otherwise the format is "dslaunch checkpoint 2".
std::string FormatManifest(const Manifest& manifest);

// Parses a text of either format that is not trusted. Checks the checksum, and all types and
// ranges. Also checks that file names do not lead out of the folder, that the slices cover each
// tensor exactly once, and that no slice is larger than its file. Throws kBadInput, naming
// `source`.
Manifest ParseManifest(const std::string& text, const std::string& source);

}  // namespace dslaunch
