// Estimates the memory of training on one rank from sizes alone. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/base/memory_bytes.h"
#include "trainer/config/engine_config.h"
#include "trainer/parallel/zero/flat_parameter.h"
#include "trainer/train/gradient_traffic.h"

namespace dslaunch {

// The sizes of a model, in elements unless noted otherwise.
struct ModelSizes {
  int64_t trained = 0;             // elements of parameters that require a gradient
  int64_t frozen = 0;              // elements of parameters that need no gradient
  int64_t buffers = 0;             // elements of floating point buffers
  int64_t batch_norm_trained = 0;  // elements of `trained` that belong to batch norms
  int64_t batch_norm_buffers = 0;
  int64_t other_buffer_bytes = 0;  // bytes of buffers of other dtypes
  // The parameters in the order in which ZeRO divides them. Their `dtype` is 1 for batch norms and
  // 0 for other parameters.
  std::vector<ShardedParameter> shardable;
};

// The memory of a model's forward and backward pass, without parameters, complete gradients and
// optimizer states. All members are in bytes.
struct PassMemory {
  // Bytes that the forward pass and the loss keep for the backward pass.
  int64_t activations = 0;
  // Maximum bytes at any time during the two passes: activations, intermediate results and the
  // gradients that one operation returns for its parameters. 0 if not known.
  int64_t peak = 0;
  // Maximum bytes after the first gradient of a parameter is complete, which is when the exchange
  // of gradients begins.
  int64_t peak_with_gradients = 0;
  // Memory when each gradient is complete; empty if not known.
  std::vector<GradientArrival> arrivals = {};
  int64_t at_end = 0;  // maximum bytes after the last gradient is complete; 0 if not known
};

// The estimated bytes of one rank:
//   parameters      elements x bytes of the model's dtype (4 for batch norms that stay in fp32)
//   gradients       trained elements x bytes of the dtype in which they accumulate
//   buckets         additional bytes to send: trained elements x bytes of the dtype of
//                   communication, if that differs and there are several ranks; and as many bytes
//                   as the gradients again, if these accumulate in the model's dtype over several
//                   micro-batches
//   optimizer       trained elements x 4 x states (Adam, LAMB 2, with amsgrad 3; Lion, Adagrad 1;
//                   SGD 1 with momentum, else 0; RMSprop 1, and 1 each with momentum and centered);
//                   without master weights, x bytes of the model's dtype instead of 4
//   master_weights  trained elements x 4 if there are master weights
// At ZeRO stages 1 to 3, sharded bytes are divided by the number of ranks N (ZeRO paper, section 5)
// and rounded up as in flat_parameter.h:
//   optimizer, master_weights   sharded from stage 1 on
//   gradients                   sharded from stage 2 on
//   parameters                  sharded at stage 3, except those that stay whole
//   buckets                     upper bound: message, received parts and sum of the units that are
//                               exchanged at the same time
//   gathered                    stage 3, upper bound: additional parameters that are whole at the
//                               same time, by the limits of the configuration
// With a parameter server the rank is a server: optimizer and master_weights are for its part of
// the parameters, and the buckets are one message of all gradients. DiLoCo, PowerSGD and 1-bit
// optimizers keep additional states (ExchangeStates in memory_plan.cc), which are counted as the
// optimizer's. Memory of the libraries is not included.
struct MemoryPlan {
  int64_t parameters = 0;
  int64_t gathered = 0;
  int64_t gradients = 0;
  int64_t buckets = 0;
  int64_t optimizer = 0;
  int64_t master_weights = 0;
  int64_t buffers = 0;
  // Maximum bytes that the passes of all micro-batches in flight hold (PassMemory::peak).
  int64_t passes = 0;
  // The maximum bytes of passes and buckets together while gradients are sent.
  int64_t passes_with_buckets = 0;
  // Bytes needed during the optimizer's step, when no passes run: fp32 copies of 16-bit gradients.
  int64_t update = 0;
  // The bytes of the members above that are offloaded: in main memory (only if ranks compute on
  // GPUs) and in files.
  int64_t in_main_memory = 0;
  int64_t in_files = 0;
  // Bytes of main memory, in addition to all members above, for copies for later attempts
  // (PlanCopies).
  int64_t copies = 0;

  // Returns the bytes of the model states, as in table 1 of the ZeRO paper.
  int64_t states() const { return parameters + gradients + optimizer + master_weights; }
  // Returns the maximum bytes in memory at one time; bytes that are offloaded to files do not
  // count.
  int64_t total() const {
    return states() + buffers +
           std::max(gathered + std::max({passes, buckets, passes_with_buckets}), update) - in_files;
  }
  int64_t on_device() const { return total() - in_main_memory; }  // bytes on the rank's GPU
};

// Returns the memory plan of one rank. Without `passes`, the plan contains no activations.
// Precondition: config.optimizer has a value.
MemoryPlan PlanMemory(const ModelSizes& model, const EngineConfig& config,
                      const PassMemory& passes = {});

// Returns the bytes of main memory that a rank needs for run.memory_checkpoint: two copies of its
// part of a checkpoint and, on a GPU, pinned memory for a third copy. With `adapters_only`, the
// checkpoint does not contain frozen parameters.
int64_t PlanCopies(const ModelSizes& model, const EngineConfig& config, bool adapters_only,
                   bool on_gpu);

// The ranks for which a plan is made, and the memory of their machines.
struct PlanPlace {
  int64_t ranks = 1;           // ranks of the job
  int64_t ranks_per_node = 0;  // number of ranks on each node; 0 if not known
  // Available bytes by kind of memory; 0 if not known. The ranks of a node share its main memory.
  int64_t device_bytes = 0;  // memory of each rank's GPU; also 0 if ranks compute on the CPU
  int64_t node_bytes = 0;    // main memory of a node
};

// Returns the plan as a table of several lines, in units such as MiB or GiB.
std::string PlanText(const MemoryPlan& plan);
// Returns a sentence about whether the plan fits: "1024 ranks, 8 on a node: 328.0 GiB together;
// this machine has 1.5 TiB, which is enough". `stages` has a plan for each stage of a pipeline;
// with several stages, a node is assumed to have ranks of the largest stage only.
std::string PlaceText(const std::vector<MemoryPlan>& stages, const PlanPlace& place);
// Returns one line of JSON: bytes by category, "ranks", and "stage" in a pipeline. "needs" is the
// bytes that the rank needs of the scarce memory: its GPU's memory if it has a GPU ("on_gpu"), else
// main memory. "has" is the bytes of that memory that the rank can use (0 if not known).
std::string PlanJson(const MemoryPlan& plan, const PlanPlace& place, int stage);
// Returns a text that compares the planned memory with the measured memory `actual`.
std::string ComparisonText(const MemoryPlan& plan, const MemoryBytes& actual);

}  // namespace dslaunch
