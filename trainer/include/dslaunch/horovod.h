// Horovod's programming style, with its names and its meaning:
//
//   namespace hvd = dslaunch::horovod;
//   hvd::Init();
//   auto sgd = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1 * hvd::Size());
//   hvd::DistributedOptimizer optimizer(sgd, hvd::NamedParameters(*model));
//   hvd::BroadcastParameters(hvd::NamedParameters(*model), 0);
//   ...
//   loss.backward();
//   optimizer.Step();
//
// For jobs that survive lost ranks and change their size see dslaunch/horovod_elastic.h.
//
// Ranks may submit tensors in any order: once per cycle, a thread of each rank agrees with the
// other ranks on which tensors all ranks have submitted, fuses small ones into one message, and
// exchanges them. Tensors are matched by name. Tensors without a name get "allreduce.noname.N" and
// the like, where N counts the calls of this rank, so all ranks must then make the same calls in
// one order.
//
// Tensors are dense and on the CPU, with any strides; autograd does not record the exchange.
// Functions may be called on any thread after Init, except where noted. Errors are TrainError:
// kUsage for a wrong call, kBadInput if ranks submitted tensors that do not match (every rank gets
// it, naming the tensor and two ranks), kUnavailable if a rank is gone, kTimedOut if a rank never
// submitted a tensor that others wait for.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dslaunch/named_tensor.h"

namespace torch::optim {
class Optimizer;
}

namespace dslaunch::horovod {

// kAverage is the sum divided by the number of ranks, rounded towards zero for integers. A rank
// that has joined contributes zeros and is included in that number.
enum class Op { kAverage, kSum, kMin, kMax, kProduct };

// The dtype in which floating-point tensors are exchanged; they are cast and cast back. kNone keeps
// their dtype.
enum class Compression { kNone, kFp16, kBf16 };

// The options of rank 0 apply to all ranks.
struct InitOptions {
  // Time between two agreements of the ranks. A longer time fuses more tensors, but delays each
  // tensor.
  std::chrono::microseconds cycle_time{1'000};
  int64_t fusion_threshold_bytes = 128 << 20;  // limit of one message; 0 disables fusion
  // Number of names to remember: names that all ranks have submitted before, with the same shape
  // and operation, are exchanged as one bit. 0 disables the cache.
  int64_t cache_capacity = 1'024;
  // A tensor that only some ranks have submitted for this long is reported on stderr with those
  // ranks, repeatedly; zero disables the warning.
  std::chrono::milliseconds stall_warning{60'000};
  // After this time all ranks get an error. Horovod waits forever by default; here every wait is
  // bounded.
  std::chrono::milliseconds stall_shutdown{600'000};
  // File for a Chrome trace of rank 0 (chrome://tracing, Perfetto); empty for none.
  std::string timeline_file = {};

  // Reads HOROVOD_CYCLE_TIME (ms), HOROVOD_FUSION_THRESHOLD (bytes), HOROVOD_CACHE_CAPACITY,
  // HOROVOD_STALL_CHECK_DISABLE, HOROVOD_STALL_CHECK_TIME_SECONDS,
  // HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (0: the default of this struct) and HOROVOD_TIMELINE.
  // Throws kUsage, naming the variable, for an invalid value.
  static InitOptions FromEnvironment();
};

// Connects the ranks that the launcher has started; without a launcher, the world has one rank.
// Collective. A second call does nothing. Call it on the main thread.
void Init(const InitOptions& options = InitOptions::FromEnvironment());
// Disconnects from the other ranks. Exchanges for which others still wait then fail there, and so
// do later calls. The end of the program does the same. Call it on the main thread.
void Shutdown();
bool IsInitialized();

int Rank();
int LocalRank();  // rank on this node
int Size();
int LocalSize();
int CrossRank();  // rank among those with this LocalRank, one on each node
int CrossSize();

// A subset of the ranks that exchange tensors among themselves. Copyable; copies refer to the same
// set.
class ProcessSet {
 public:
  ProcessSet() = default;  // all ranks
  int id() const { return id_; }
  std::vector<int> ranks() const;
  bool Included() const;  // whether this rank is in the set
  int Rank() const;       // rank in the set; throws if this rank is not in it
  int Size() const;
  bool operator==(const ProcessSet&) const = default;

 private:
  friend ProcessSet AddProcessSet(const std::vector<int>& ranks);
  explicit ProcessSet(int id) : id_(id) {}
  int id_ = 0;
};

// `ranks` are ranks of the job, in ascending order without duplicates. Collective over all ranks of
// the job, in the same order of calls. Call it on the main thread.
ProcessSet AddProcessSet(const std::vector<int>& ranks);
// Removes a set; collective like AddProcessSet. Precondition: no exchange of the set is pending.
void RemoveProcessSet(const ProcessSet& set);

// A submitted tensor, or a group of them.
class Handle {
 public:
  struct State;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  friend bool Poll(const Handle& handle);
  friend std::vector<at::Tensor> SynchronizeGroup(const Handle& handle);
  std::shared_ptr<State> state_;
};

struct ReduceOptions {
  std::string name = {};
  Op op = Op::kAverage;
  double prescale_factor = 1.0;   // multiplies each rank's tensor before the reduction
  double postscale_factor = 1.0;  // multiplies the result
  Compression compression = Compression::kNone;
  ProcessSet process_set = {};
};

struct ExchangeOptions {
  std::string name = {};
  ProcessSet process_set = {};
};

// Reduce a tensor [...] of the same shape and dtype on all ranks: float, double, half, bfloat16,
// uint8, int8, int32 or int64. The result has its own memory; the functions with _ work in place,
// as in Horovod. The tensor must not change until the result is available.
Handle AllreduceAsync(const at::Tensor& tensor, const ReduceOptions& options = {});
Handle AllreduceAsync_(at::Tensor& tensor, const ReduceOptions& options = {});
at::Tensor Allreduce(const at::Tensor& tensor, const ReduceOptions& options = {});
void Allreduce_(at::Tensor& tensor, const ReduceOptions& options = {});
// Reduce a group: only when all ranks have submitted all its tensors, which are fused whatever
// their size.
Handle GroupedAllreduceAsync(const std::vector<at::Tensor>& tensors,
                             const ReduceOptions& options = {});
Handle GroupedAllreduceAsync_(const std::vector<at::Tensor>& tensors,
                              const ReduceOptions& options = {});
std::vector<at::Tensor> GroupedAllreduce(const std::vector<at::Tensor>& tensors,
                                         const ReduceOptions& options = {});

// Gather tensors [n, ...] of one dtype, with any n on each rank; return all rows in the order of
// the ranks.
Handle AllgatherAsync(const at::Tensor& tensor, const ExchangeOptions& options = {});
at::Tensor Allgather(const at::Tensor& tensor, const ExchangeOptions& options = {});

// Broadcast the tensor of rank `root_rank`, which is a rank of the job even in a process set.
Handle BroadcastAsync(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
Handle BroadcastAsync_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
at::Tensor Broadcast(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
void Broadcast_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});

// Sends parts of a tensor [n, ...]: the first splits[0] rows go to rank 0, the next splits[1] to
// rank 1, ...; empty for equal parts. Returns the rows for this rank in the order of the ranks, and
// how many came from each.
struct AlltoallResult {
  at::Tensor received;
  std::vector<int64_t> received_splits;
};
AlltoallResult Alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits = {},
                        const ExchangeOptions& options = {});

// Returns whether Synchronize would return without waiting.
bool Poll(const Handle& handle);
// Return the result, or throw. Wait at most InitOptions::stall_shutdown for ranks that have not
// submitted.
at::Tensor Synchronize(const Handle& handle);
std::vector<at::Tensor> SynchronizeGroup(const Handle& handle);

// For a rank without more data: takes part in all reductions of the others with zeros until all
// ranks have joined. Returns the rank that joined last. Only reductions are possible meanwhile; a
// broadcast, an all-gather or an all-to-all of the others fails.
int Join();
void Barrier(const ProcessSet& set = {});

// Returns the parameters and buffers of a module, named by their paths.
std::vector<NamedTensor> NamedParameters(const torch::nn::Module& module);
// Copies the values of rank `root_rank` to all ranks.
void BroadcastParameters(const std::vector<NamedTensor>& parameters, int root_rank);
// Copies the state of an optimizer (moments, steps) and its options (learning rate, ...) of rank
// `root_rank` to all ranks. Supports torch::optim's Adam, AdamW, SGD, RMSprop and Adagrad with the
// same groups on all ranks. Ranks other than the root need not have made a step yet.
void BroadcastOptimizerState(torch::optim::Optimizer& optimizer, int root_rank);

struct DistributedOptimizerOptions {
  Compression compression = Compression::kNone;
  // Number of backward passes whose gradients are summed on each rank before they are exchanged.
  int backward_passes_per_step = 1;
  Op op = Op::kAverage;
  // With kAverage: gradients are divided by this before the sum, and by Size() / this after it.
  double gradient_predivide_factor = 1.0;
  // Parameters whose gradients are exchanged together: a number of groups, or explicit groups, but
  // not both.
  int num_groups = 0;
  std::vector<std::vector<at::Tensor>> groups = {};
  ProcessSet process_set = {};
};

// Exchanges each gradient as soon as a backward pass has computed it. Each parameter's gradient is
// in .grad() when Step or Synchronize returns. Used by one thread, which also runs the backward
// passes.
class DistributedOptimizer {
 public:
  // `named_parameters` must name every parameter of the optimizer, with unique names; otherwise
  // throws kUsage with the missing names. If it is empty, names are made from positions.
  DistributedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                       const std::vector<NamedTensor>& named_parameters,
                       const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Throws between a backward pass and Step or Synchronize, while gradients are being exchanged.
  void ZeroGrad();
  // Waits for the gradients, for example to clip them before a Step within SkipSynchronize(). A
  // parameter without a gradient contributes zeros.
  void Synchronize();
  // Calls Synchronize, unless within SkipSynchronize, and the optimizer's step().
  void Step();

  class [[nodiscard]] SkipSynchronizeScope {
   public:
    explicit SkipSynchronizeScope(DistributedOptimizer& optimizer);
    ~SkipSynchronizeScope();
    SkipSynchronizeScope(const SkipSynchronizeScope&) = delete;
    SkipSynchronizeScope& operator=(const SkipSynchronizeScope&) = delete;

   private:
    DistributedOptimizer& optimizer_;
  };
  SkipSynchronizeScope SkipSynchronize() { return SkipSynchronizeScope(*this); }

  torch::optim::Optimizer& optimizer() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch::horovod
