// Provides Horovod's programming interface, with Horovod's names and semantics:
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
// For jobs that survive lost ranks and change their size, see dslaunch/horovod_elastic.h.
//
// Ranks may submit tensors in any order: once per cycle, a thread of each rank agrees with the
// other ranks on which tensors all ranks have submitted, fuses small ones into one message, and
// exchanges them. Tensors are matched by name. Tensors without a name get "allreduce.noname.N" and
// the like, where N counts the calls of this rank, so all ranks must then make the same calls in
// one order.
//
// Tensors are dense and on the CPU, with any strides; autograd does not record the exchange.
// Functions may be called on any thread after Init, except where noted. Errors are TrainError. The
// code is kUsage for a wrong call; kBadInput, on every rank, if ranks submitted tensors that do not
// match; kUnavailable if a rank was lost; and kTimedOut if a rank did not submit a tensor that
// other ranks wait for. The message of kBadInput names the tensor and two ranks.
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

// The operation of a reduction. kAverage is the sum divided by the number of ranks, rounded towards
// zero for integers. A rank that has called Join contributes zeros and is included in that number.
enum class Op { kAverage, kSum, kMin, kMax, kProduct };

// The dtype to which floating-point tensors are cast for the exchange; results are cast back. kNone
// keeps the dtype of the tensors.
enum class Compression { kNone, kFp16, kBf16 };

// Configures the exchange of tensors. The options of rank 0 apply to all ranks.
struct InitOptions {
  // Time between two cycles in which the ranks agree on tensors to exchange. A longer time fuses
  // more tensors, but delays each tensor.
  std::chrono::microseconds cycle_time{1'000};
  int64_t fusion_threshold_bytes = 128 << 20;  // maximum size of a fused message; 0 disables fusion
  // Maximum number of cached names. The ranks exchange a cached name as one bit if all ranks have
  // submitted it before with the same shape and operation. 0 disables the cache.
  int64_t cache_capacity = 1'024;
  // If only some ranks have submitted a tensor for this long, a warning on stderr names the tensor
  // and those ranks, repeatedly. Zero disables the warning.
  std::chrono::milliseconds stall_warning{60'000};
  // If only some ranks have submitted a tensor for this long, all ranks get an error. Horovod waits
  // forever by default, but dslaunch bounds every wait.
  std::chrono::milliseconds stall_shutdown{600'000};
  // File for a Chrome trace of rank 0 (chrome://tracing, Perfetto); empty if no trace is to be
  // written.
  std::string timeline_file = {};

  // Returns the options of the environment variables HOROVOD_CYCLE_TIME (ms),
  // HOROVOD_FUSION_THRESHOLD (bytes), HOROVOD_CACHE_CAPACITY, HOROVOD_STALL_CHECK_DISABLE,
  // HOROVOD_STALL_CHECK_TIME_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (0 selects the default of
  // this struct) and HOROVOD_TIMELINE. Throws kUsage, naming the variable, for an invalid value.
  static InitOptions FromEnvironment();
};

// Connects this rank to the other ranks that the launcher has started. Without a launcher, the job
// has one rank. Collective. A second call does nothing. Call it on the main thread.
void Init(const InitOptions& options = InitOptions::FromEnvironment());
// Disconnects from the other ranks. If other ranks still wait for this rank in an exchange, the
// exchange fails on those ranks, and so do later calls. The end of the program also disconnects.
// Call it on the main thread.
void Shutdown();
bool IsInitialized();

int Rank();
int LocalRank();  // returns this rank's index among the ranks on its node
int Size();
int LocalSize();
// Returns this rank's index among the ranks with the same LocalRank() on all nodes.
int CrossRank();
int CrossSize();

// A subset of the ranks that exchange tensors among themselves. Copyable; copies refer to the same
// set.
class ProcessSet {
 public:
  ProcessSet() = default;  // creates a reference to the set of all ranks
  int id() const { return id_; }
  std::vector<int> ranks() const;
  bool Included() const;  // returns whether this rank is in the set
  int Rank() const;  // returns this rank's index in the set; throws if this rank is not in the set
  int Size() const;
  bool operator==(const ProcessSet&) const = default;

 private:
  friend ProcessSet AddProcessSet(const std::vector<int>& ranks);
  explicit ProcessSet(int id) : id_(id) {}
  int id_ = 0;
};

// Adds a set of ranks of the job. `ranks` must be ascending without duplicates. Collective: all
// ranks of the job must make these calls in the same order. Call it on the main thread.
ProcessSet AddProcessSet(const std::vector<int>& ranks);
// Removes a set. Collective like AddProcessSet. Precondition: no exchange of the set is pending.
void RemoveProcessSet(const ProcessSet& set);

// A reference to a submitted tensor, or to a submitted group of tensors.
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
  double prescale_factor = 1.0;   // factor that multiplies each rank's tensor before the reduction
  double postscale_factor = 1.0;  // factor that multiplies the result of the reduction
  Compression compression = Compression::kNone;
  ProcessSet process_set = {};
};

struct ExchangeOptions {
  std::string name = {};
  ProcessSet process_set = {};
};

// Reduces a tensor [...] of the same shape and dtype on all ranks: float, double, half, bfloat16,
// uint8, int8, int32 or int64. The result has its own memory; the functions with _ work in place,
// as in Horovod. The functions with Async return at once, and Synchronize waits for the result. The
// tensor must not change until the result is available.
Handle AllreduceAsync(const at::Tensor& tensor, const ReduceOptions& options = {});
Handle AllreduceAsync_(at::Tensor& tensor, const ReduceOptions& options = {});
at::Tensor Allreduce(const at::Tensor& tensor, const ReduceOptions& options = {});
void Allreduce_(at::Tensor& tensor, const ReduceOptions& options = {});
// Reduces a group of tensors once all ranks have submitted all tensors of the group. Tensors of a
// group are always fused, even above fusion_threshold_bytes.
Handle GroupedAllreduceAsync(const std::vector<at::Tensor>& tensors,
                             const ReduceOptions& options = {});
Handle GroupedAllreduceAsync_(const std::vector<at::Tensor>& tensors,
                              const ReduceOptions& options = {});
std::vector<at::Tensor> GroupedAllreduce(const std::vector<at::Tensor>& tensors,
                                         const ReduceOptions& options = {});

// Gathers tensors [n, ...] of one dtype; n may differ between ranks. Returns all rows in the order
// of the ranks.
Handle AllgatherAsync(const at::Tensor& tensor, const ExchangeOptions& options = {});
at::Tensor Allgather(const at::Tensor& tensor, const ExchangeOptions& options = {});

// Broadcasts the tensor of rank `root_rank`, which is a rank of the job even in a process set.
Handle BroadcastAsync(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
Handle BroadcastAsync_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
at::Tensor Broadcast(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
void Broadcast_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});

// The rows that Alltoall received, in the order of their source ranks, and the number of rows from
// each rank.
struct AlltoallResult {
  at::Tensor received;
  std::vector<int64_t> received_splits;
};
// Sends parts of a tensor [n, ...]: the first splits[0] rows go to rank 0, the next splits[1] rows
// to rank 1, and so on. Empty `splits` means equal parts.
AlltoallResult Alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits = {},
                        const ExchangeOptions& options = {});

// Returns whether Synchronize would return without waiting.
bool Poll(const Handle& handle);
// Waits for the exchange and returns its result. Waits at most InitOptions::stall_shutdown for
// ranks that have not submitted the tensors. Throws if the exchange failed.
at::Tensor Synchronize(const Handle& handle);
std::vector<at::Tensor> SynchronizeGroup(const Handle& handle);

// Takes part in all reductions of the other ranks with zeros until all ranks have joined. Call it
// on a rank that has no more data. Returns the rank that joined last. Meanwhile only reductions are
// possible: a broadcast, an all-gather or an all-to-all of the other ranks fails.
int Join();
void Barrier(const ProcessSet& set = {});

// Returns the parameters and buffers of a module, named by their paths.
std::vector<NamedTensor> NamedParameters(const torch::nn::Module& module);
// Copies the values of the parameters on rank `root_rank` to all ranks.
void BroadcastParameters(const std::vector<NamedTensor>& parameters, int root_rank);
// Copies an optimizer's state (moments, steps) and options (learning rate and others) from rank
// `root_rank` to all ranks. Supports torch::optim's Adam, AdamW, SGD, RMSprop and Adagrad with the
// same groups on all ranks. Ranks other than the root may call it before their first step.
void BroadcastOptimizerState(torch::optim::Optimizer& optimizer, int root_rank);

struct DistributedOptimizerOptions {
  Compression compression = Compression::kNone;
  // Number of backward passes whose gradients are summed on each rank before they are exchanged.
  int backward_passes_per_step = 1;
  Op op = Op::kAverage;
  // Divisor of the gradients before they are summed, only with kAverage. The sum is then divided by
  // Size() / gradient_predivide_factor.
  double gradient_predivide_factor = 1.0;
  // Groups of parameters whose gradients are exchanged together. Set num_groups, or list the groups
  // explicitly, but not both.
  int num_groups = 0;
  std::vector<std::vector<at::Tensor>> groups = {};
  ProcessSet process_set = {};
};

// Exchanges each gradient as soon as a backward pass has computed it. Each parameter's gradient is
// in .grad() when Step or Synchronize returns. Used by one thread, which also runs the backward
// passes.
class DistributedOptimizer {
 public:
  // Throws kUsage with the missing names unless `named_parameters` names every parameter of the
  // optimizer, with unique names. If `named_parameters` is empty, names are made from positions.
  DistributedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                       const std::vector<NamedTensor>& named_parameters,
                       const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Clears the gradients. Throws between a backward pass and Step or Synchronize, because gradients
  // are being exchanged then.
  void ZeroGrad();
  // Waits for the gradients, for example to clip them before a Step within SkipSynchronize(). A
  // parameter without a gradient contributes zeros.
  void Synchronize();
  // Runs the optimizer's step(). Calls Synchronize first, unless within SkipSynchronize.
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
