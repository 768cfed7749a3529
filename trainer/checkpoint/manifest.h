// manifest.json of a checkpoint: the tensors with their files, and the position of the run.
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

// Elements of a tensor that are stored in `file` under the tensor's name.
struct TensorSlice {
  Shard shard;
  std::string file;
};

// A logical tensor: its name and its size do not depend on the number of ranks that wrote it.
struct TensorRecord {
  std::string name;  // "fc1.weight"; "optimizer/exp_avg/fc1.weight"
  std::string dtype;
  std::vector<int64_t> shape;
  // Ordered by offset and start, all with one pitch. Together they contain each element exactly
  // once. A file has at most one of them.
  std::vector<TensorSlice> slices;
};

// Prefixes of names of tensors that do not belong to the model.
inline constexpr char kOptimizerPrefix[] = "optimizer/";
inline constexpr char kGeneratorPrefix[] = "generator/cpu/";
inline constexpr char kRankPrefix[] = "rank_state/";

// Whether the tensor is a weight or a buffer of the model.
bool IsOfModel(const TensorRecord& tensor);
// Whether the tensor of this name is state of the optimizer.
bool IsOfOptimizer(const std::string& name);

// The optimizer's state of one parameter.
struct StateName {
  std::string kind;       // "exp_avg"
  std::string parameter;  // "fc1.weight"
};
// Returns "optimizer/exp_avg/fc1.weight".
std::string NameOfState(const std::string& kind, const std::string& parameter);
// Returns the parts of such a name; nullopt for the name of another tensor.
std::optional<StateName> SplitNameOfState(const std::string& name);

struct FileRecord {
  std::string name;  // file name in the checkpoint's folder
  FileSum sum;
};

// The position of a run, counted in samples, so that it does not depend on the number of ranks.
struct Position {
  int64_t step = 0;              // completed optimizer steps
  int64_t epoch = 0;             // completed passes over the data
  int64_t samples_in_epoch = 0;  // samples of the current pass that all ranks have consumed
};

struct Manifest {
  int64_t serial = 0;  // counts the saves into a folder: the highest is the newest
  std::string run_id;  // id of the training run; a resumed run keeps it
  std::string job_id;  // id of the job that saved
  // StartKey of the options by which the run started: these options and a digest of its recipe.
  // Empty without such options, or if an older version saved.
  std::string started_by;
  Position position;
  int64_t optimizer_updates = 0;  // updates that the optimizer's state includes
  std::string optimizer;          // the optimizer's type, "AdamW"; empty if not known
  LossScalerState loss_scaler;    // the initial state if not known
  uint64_t seed = 0;
  int64_t train_samples = 0;  // size of the data set
  int64_t samples_seen = 0;   // samples since the first step
  int64_t world_size = 0;     // number of ranks that saved
  int64_t train_batch_size = 0;
  // The following are missing in manifests of older versions.
  int64_t saved_ms = 0;                // Unix time; 0 if not known
  std::optional<bool> shuffle;         // whether the data's order is drawn from the seed
  int64_t micro_steps = 0;             // EngineCore::micro_steps()
  int64_t skipped_steps = 0;           // EngineProgress; if not known: steps without an update
  int64_t scheduled_updates = 0;       // EngineProgress; if not known: optimizer_updates
  std::vector<double> learning_rates;  // EngineProgress
  std::vector<double> next_rates;      // GetLearningRates(); for display and other programs only
  int64_t zero_stage = 0;              // for display only
  int64_t pipeline_stages = 0;         // display only; 0 if not known
  std::optional<double> loss;          // mean over the steps before the save; display only
  std::string dtype;  // dtype of forward and backward passes, "bf16"; for display only
  std::string model;  // the recipe's model section as JSON text; empty without a recipe
  // AdapterRecord as JSON text if the model's tensors are adapters; empty for whole models.
  std::string adapters;
  std::map<std::string, std::string> client_state;  // texts given by the program
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;
};

inline constexpr char kManifestFile[] = "manifest.json";

// Returns JSON whose first line holds the checksum of all that follows it. Its format is "dslaunch
// checkpoint 1" if every slice is contiguous, which is all that older programs read, else
// "dslaunch checkpoint 2".
std::string FormatManifest(const Manifest& manifest);

// Parses text that is not trusted, of either format. Checks the checksum, every type and range,
// that file names stay in the folder, that the slices cover each tensor once and that no slice is
// larger than its file. Throws kBadInput, naming `source`.
Manifest ParseManifest(const std::string& text, const std::string& source);

}  // namespace dslaunch
