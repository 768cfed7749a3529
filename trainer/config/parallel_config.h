// Defines how ranks share the work. The section "parallel" of an engine configuration, which
// DeepSpeed does not have, is for ranks with whole models; "tensor_parallel" is for ranks that
// divide each layer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/base/dtype.h"

namespace dslaunch {

class JsonObject;

struct ParallelConfig {
  enum class Mode {
    kAllReduce,  // every rank sums the gradients of every step and updates the weights
    // The first `servers` ranks sum gradients and update weights, each for a part of the
    // parameters.
    kParameterServer,
    // Ranks train separately and average their weights after every `inner_steps` steps.
    kLocalSgd,
    // Like kLocalSgd, but an outer optimizer uses the change of the weights as its gradient.
    kDiloco,
    kPowerSgd,  // gradients are sent as products of two thin matrices
  };
  Mode mode = Mode::kAllReduce;

  int64_t servers = 1;  // number of ranks that are servers, for kParameterServer
  // Number of steps that a rank may be ahead of the slowest rank, for kParameterServer; servers
  // then update as gradients arrive. If nullopt, all ranks make every step together.
  std::optional<int64_t> staleness = {};

  // Number of steps between two exchanges; for kLocalSgd and kDiloco.
  int64_t inner_steps = 1;
  // Settings of kDiloco's outer optimizer, SGD, with the defaults of the paper.
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  bool outer_nesterov = true;

  // Settings of kPowerSgd, with the names and defaults of PyTorch's PowerSGDState.
  int64_t matrix_approximation_rank = 1;
  int64_t start_iter = 1000;  // number of initial steps whose gradients are sent uncompressed
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0;
  int64_t random_seed = 0;

  // Returns whether the ranks' weights differ between two exchanges.
  bool TrainsApart() const { return mode == Mode::kLocalSgd || mode == Mode::kDiloco; }
};

const char* ParallelModeName(ParallelConfig::Mode mode);  // returns a name such as "all_reduce"

// Reads the section "parallel". `ranks` is the world size; 0 if unknown. Throws TrainError
// kBadInput, naming the key.
ParallelConfig ParseParallel(JsonObject object, int64_t ranks);
nlohmann::ordered_json ShowParallel(const ParallelConfig& parallel);

struct TensorParallelConfig {
  int64_t size = 1;  // number of ranks that divide each layer of the model (autotp_size)
  // True if norms, residuals and their dropouts process only 1 / size of each sample's tokens on
  // each rank.
  bool sequence_parallel = false;
  bool allow_across_nodes = false;  // true if the ranks that divide a layer may be on several nodes
};

// Reads the section "tensor_parallel". `program_size` is the size of the program's own tensor
// group; 0 if there is none. Throws TrainError kBadInput, naming the key, also if the size differs
// from autotp_size.
TensorParallelConfig ParseTensorParallel(JsonObject object, int64_t program_size = 0);
nlohmann::ordered_json ShowTensorParallel(const TensorParallelConfig& tensor);

// Returns a clause "is 4, but ..." if ranks that divide a layer are on several nodes and the
// configuration does not allow this; otherwise "". The node has `count` ranks, beginning with rank
// `first`.
std::string PartsAcrossNodes(const TensorParallelConfig& tensor, int64_t first, int64_t count);

}  // namespace dslaunch
