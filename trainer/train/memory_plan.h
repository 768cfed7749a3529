// Memory of training on one rank, estimated from sizes alone. Pure.
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

// Sizes of a model, in elements.
struct ModelSizes {
  int64_t trained = 0;             // elements of parameters that require a gradient
  int64_t frozen = 0;              // elements of the other parameters
  int64_t buffers = 0;             // elements of floating point buffers
  int64_t batch_norm_trained = 0;  // how many of `trained` belong to batch norms
  int64_t batch_norm_buffers = 0;
  int64_t other_buffer_bytes = 0;  // bytes of buffers of other dtypes
  // The parameters as ZeRO divides them; dtype is 1 for batch norms and 0 for others.
  std::vector<ShardedParameter> shardable;
};

// Memory of a model's passes, without the states.
struct PassMemory {
  // Bytes that the forward pass and the loss leave to the backward pass.
  int64_t activations = 0;
  // The maximum bytes at any time of both passes: activations, intermediate results and the
  // gradients of the parameters that one operation returns. 0: not known.
  int64_t peak = 0;
  // The maximum from the first gradient of a parameter on, when the exchange of gradients begins.
  int64_t peak_with_gradients = 0;
  // The memory around each gradient, and after the last one; empty: not known.
  std::vector<GradientArrival> arrivals = {};
  int64_t at_end = 0;
};

// Bytes of one rank:
//   parameters      elements x bytes of the model's dtype (batch norms 4 where they stay fp32)
//   gradients       trained elements x bytes of the dtype that they accumulate in
//   buckets         what travels beside that: trained elements x bytes of the dtype of
//   communication
//                   where that is another one and there are several ranks; and where gradients
//                   accumulate in the model's dtype over several micro-batches once more as much as
//                   the gradients
//   optimizer       trained elements x 4 x states (Adam, LAMB 2, with amsgrad 3; Lion, Adagrad 1;
//                   SGD 1 with momentum, else 0; RMSprop 1, and 1 each with momentum and centered);
//                   without master weights x bytes of the model's dtype
//   master_weights  trained elements x 4 where there are any
// At ZeRO stages 1 to 3 what is sharded is divided by the number of ranks N (ZeRO paper, section
// 5), and rounded up as in flat_parameter.h:
//   optimizer, master_weights   from stage 1 on
//   gradients                   from stage 2 on
//   parameters                  at stage 3, but for those that stay whole; what is gathered at a
//                               time comes on top
//   buckets                     at most: of the units that are under way at the same time, message,
//                               received parts and sum
//   gathered                    stage 3, at most: parameters that are whole at the same time, by
//                               the limits of the configuration
// With a parameter server the rank is a server: optimizer and master_weights are for its part of
// the parameters, and the buckets are one message of all gradients. DiLoCo, PowerSGD and 1-bit
// optimizers keep what memory_plan.cc's ExchangeStates adds, counted as the optimizer's.
// Memory of the libraries is not included.
struct MemoryPlan {
  int64_t parameters = 0;
  int64_t gathered = 0;
  int64_t gradients = 0;
  int64_t buckets = 0;
  int64_t optimizer = 0;
  int64_t master_weights = 0;
  int64_t buffers = 0;
  // Maximum bytes that the passes of all micro-batches in flight hold: PassMemory::peak.
  int64_t passes = 0;
  int64_t passes_with_buckets = 0;  // maximum of both together while gradients are sent
  // Needed during the optimizer's step, when there are no passes: fp32 copies of 16-bit gradients.
  int64_t update = 0;
  // The part of the above that is offloaded: to main memory (only if ranks compute on GPUs) and to
  // files.
  int64_t in_main_memory = 0;
  int64_t in_files = 0;
  // Needed in main memory besides all of the above: copies for later attempts (PlanCopies).
  int64_t copies = 0;

  // The sum that table 1 of the ZeRO paper lists.
  int64_t states() const { return parameters + gradients + optimizer + master_weights; }
  // The maximum at one time, without what is offloaded to files.
  int64_t total() const {
    return states() + buffers +
           std::max(gathered + std::max({passes, buckets, passes_with_buckets}), update) - in_files;
  }
  int64_t on_device() const { return total() - in_main_memory; }  // bytes on a GPU
};

// Precondition: config.optimizer has a value. Without `passes`, activations are left out.
MemoryPlan PlanMemory(const ModelSizes& model, const EngineConfig& config,
                      const PassMemory& passes = {});

// Returns the main memory that a rank needs for run.memory_checkpoint: two copies of its part of a
// checkpoint, and on a GPU pinned memory for a third copy. `adapters_only`: a checkpoint holds no
// frozen parameters.
int64_t PlanCopies(const ModelSizes& model, const EngineConfig& config, bool adapters_only,
                   bool on_gpu);

// The ranks and the memory for which a plan is made.
struct PlanPlace {
  int64_t ranks = 1;           // ranks of the job
  int64_t ranks_per_node = 0;  // 0: not known
  // Available memory by kind; 0: not known. The ranks of a node share main memory.
  int64_t device_bytes = 0;  // memory of each rank's GPU; 0 also if ranks compute on the CPU
  int64_t node_bytes = 0;    // main memory
};

// Returns the plan as lines for people, with suitable units.
std::string PlanText(const MemoryPlan& plan);
// Returns whether the plan fits: "1024 ranks, 8 on a node: 328.0 GiB together; this machine has 1.5
// TiB, which is enough". `stages` has a plan for each stage of a pipeline; a node is then assumed
// to have ranks of the largest stage only.
std::string PlaceText(const std::vector<MemoryPlan>& stages, const PlanPlace& place);
// Returns one line of JSON: bytes by category, "ranks", and "stage" in a pipeline. "needs" is what
// a rank needs of the memory that may be too small, its GPU's if it has one ("on_gpu"), and "has"
// its part of the available memory (0: not known).
std::string PlanJson(const MemoryPlan& plan, const PlanPlace& place, int stage);
std::string ComparisonText(const MemoryPlan& plan, const MemoryBytes& actual);

}  // namespace dslaunch
