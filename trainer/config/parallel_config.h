// How ranks share the work. The section "parallel" of an engine configuration, which DeepSpeed does
// not have, is for ranks with whole models; "tensor_parallel" is for ranks that divide each layer.
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
    kAllReduce,        // every rank adds up the gradients of every step and updates the weights
    kParameterServer,  // the first `servers` ranks do that, each for a part of the parameters
    kLocalSgd,         // ranks train separately and average their weights after every `inner_steps`
    kDiloco,    // like kLocalSgd; an outer optimizer uses the change of the weights as its gradient
    kPowerSgd,  // gradients are sent as products of two thin matrices
  };
  Mode mode = Mode::kAllReduce;

  // kParameterServer.
  int64_t servers = 1;
  // Number of steps that a rank may be ahead of the slowest, while servers update as gradients
  // arrive; nullopt: all ranks make every step together.
  std::optional<int64_t> staleness = {};

  // kLocalSgd and kDiloco.
  int64_t inner_steps = 1;
  // kDiloco: settings of the outer optimizer, SGD, with the defaults of the paper.
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  bool outer_nesterov = true;

  // kPowerSgd: settings with the names and defaults of PyTorch's PowerSGDState.
  int64_t matrix_approximation_rank = 1;
  int64_t start_iter = 1000;  // number of first steps whose gradients are sent whole
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0;
  int64_t random_seed = 0;

  // Whether the ranks' weights differ between two exchanges.
  bool TrainsApart() const { return mode == Mode::kLocalSgd || mode == Mode::kDiloco; }
};

const char* ParallelModeName(ParallelConfig::Mode mode);  // "all_reduce"

// `ranks` is the world size; 0: unknown. Throws TrainError kBadInput, naming the key.
ParallelConfig ParseParallel(JsonObject object, int64_t ranks);
nlohmann::ordered_json ShowParallel(const ParallelConfig& parallel);

struct TensorParallelConfig {
  int64_t size = 1;  // autotp_size: ranks that divide each layer of the model between them
  // Norms, residuals and their dropouts work on 1 / size of each sample's tokens on each rank.
  bool sequence_parallel = false;
  bool allow_across_nodes = false;  // whether these ranks may be on several nodes
};

// `program_size` is the size of the program's own group; 0: it gives none. Throws TrainError
// kBadInput, naming the key, also if it differs from autotp_size.
TensorParallelConfig ParseTensorParallel(JsonObject object, int64_t program_size = 0);
nlohmann::ordered_json ShowTensorParallel(const TensorParallelConfig& tensor);

// Returns a clause "is 4, but ..." if ranks that divide a layer are on several nodes and this is
// not allowed; else "". The node has `count` ranks, from `first` on.
std::string PartsAcrossNodes(const TensorParallelConfig& tensor, int64_t first, int64_t count);

}  // namespace dslaunch
