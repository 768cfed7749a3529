// Horovod's way to write a distributed program, with its names and its meaning:
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
// Jobs that survive lost ranks and change their size: dslaunch/horovod_elastic.h.
//
// Ranks may submit tensors in any order: a thread of each rank agrees with those of the others,
// once a cycle, on which tensors all ranks have submitted, fuses small ones into one message, and
// exchanges them. Tensors belong together by their names. Those without get "allreduce.noname.N"
// and the like, N counting the calls of this rank, so all ranks then make the same calls in one
// order.
//
// Tensors are dense and on the CPU, with any strides; autograd does not record the exchange.
// Functions may be called from any thread after Init, except where they say otherwise. Errors are
// TrainError: kUsage for a wrong call, kBadInput where ranks submitted tensors that do not fit each
// other (every rank gets it, naming the tensor and two ranks), kUnavailable where a rank has gone,
// kTimedOut where a rank never submitted a tensor that others wait for.
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

// kAverage is the sum divided by the number of ranks, towards zero for integers. A rank that has
// joined counts with zeros, and in that number.
enum class Op { kAverage, kSum, kMin, kMax, kProduct };

// How floating-point tensors travel; kNone: as they are. Others are cast and back.
enum class Compression { kNone, kFp16, kBf16 };

// Rank 0's count for all ranks.
struct InitOptions {
  // Time from one agreement of the ranks to the next: a longer one fuses more tensors, and a tensor
  // waits longer.
  std::chrono::microseconds cycle_time{1'000};
  int64_t fusion_threshold_bytes = 128 << 20;  // of one message; 0: tensors are not fused
  // Names that all ranks have submitted before, with one shape and operation, travel as one bit.
  // 0: none.
  int64_t cache_capacity = 1'024;
  // A tensor that some ranks have submitted and others not for this long is named on stderr with
  // those ranks, again and again; zero: never.
  std::chrono::milliseconds stall_warning{60'000};
  // After this it is an error on all ranks. Horovod waits forever by default; here no wait does.
  std::chrono::milliseconds stall_shutdown{600'000};
  // Chrome trace of rank 0 (chrome://tracing, Perfetto); empty: none.
  std::string timeline_file = {};

  // HOROVOD_CYCLE_TIME (ms), HOROVOD_FUSION_THRESHOLD (bytes), HOROVOD_CACHE_CAPACITY,
  // HOROVOD_STALL_CHECK_DISABLE, HOROVOD_STALL_CHECK_TIME_SECONDS,
  // HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (0: the default of this struct) and HOROVOD_TIMELINE.
  // Throws kUsage, naming the variable, for a value that cannot be.
  static InitOptions FromEnvironment();
};

// Connects the ranks that the launcher has started; without one, a world of one. Collective.
// A second call does nothing. From the main thread.
void Init(const InitOptions& options = InitOptions::FromEnvironment());
// Leaves the ranks. What others still wait for then fails on them, and so do later calls. The end
// of the program does the same. From the main thread.
void Shutdown();
bool IsInitialized();

int Rank();
int LocalRank();  // on this node
int Size();
int LocalSize();
int CrossRank();  // among the ranks with this LocalRank, one of each node
int CrossSize();

// Some of the ranks, which exchange tensors among themselves. A copyable name of a set.
class ProcessSet {
 public:
  ProcessSet() = default;  // all ranks
  int id() const { return id_; }
  std::vector<int> ranks() const;
  bool Included() const;  // whether this rank is in it
  int Rank() const;       // in the set; throws where this rank is not in it
  int Size() const;
  bool operator==(const ProcessSet&) const = default;

 private:
  friend ProcessSet AddProcessSet(const std::vector<int>& ranks);
  explicit ProcessSet(int id) : id_(id) {}
  int id_ = 0;
};

// `ranks` are of all ranks, each once, ascending. Collective over all ranks of the job, in the same
// order of calls. From the main thread.
ProcessSet AddProcessSet(const std::vector<int>& ranks);
// Collective in the same way. Nothing of it may be under way.
void RemoveProcessSet(const ProcessSet& set);

// A tensor, or a group of them, that was submitted.
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
  double prescale_factor = 1.0;   // of each rank's tensor, before the reduction
  double postscale_factor = 1.0;  // of the result
  Compression compression = Compression::kNone;
  ProcessSet process_set = {};
};

struct ExchangeOptions {
  std::string name = {};
  ProcessSet process_set = {};
};

// [...] of one shape and dtype on all ranks: float, double, half, bfloat16, uint8, int8, int32 or
// int64. The result has its own memory; the one with _ is in place, as in Horovod. The tensor must
// not change until the result is there.
Handle AllreduceAsync(const at::Tensor& tensor, const ReduceOptions& options = {});
Handle AllreduceAsync_(at::Tensor& tensor, const ReduceOptions& options = {});
at::Tensor Allreduce(const at::Tensor& tensor, const ReduceOptions& options = {});
void Allreduce_(at::Tensor& tensor, const ReduceOptions& options = {});
// All or none: reduced when all ranks have submitted all tensors, and fused whatever their size.
Handle GroupedAllreduceAsync(const std::vector<at::Tensor>& tensors,
                             const ReduceOptions& options = {});
Handle GroupedAllreduceAsync_(const std::vector<at::Tensor>& tensors,
                              const ReduceOptions& options = {});
std::vector<at::Tensor> GroupedAllreduce(const std::vector<at::Tensor>& tensors,
                                         const ReduceOptions& options = {});

// [n, ...] of each rank, any n, one dtype; returns all of them in the order of the ranks.
Handle AllgatherAsync(const at::Tensor& tensor, const ExchangeOptions& options = {});
at::Tensor Allgather(const at::Tensor& tensor, const ExchangeOptions& options = {});

// The tensor of rank `root_rank` (of all ranks, also in a process set).
Handle BroadcastAsync(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
Handle BroadcastAsync_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
at::Tensor Broadcast(const at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});
void Broadcast_(at::Tensor& tensor, int root_rank, const ExchangeOptions& options = {});

// [n, ...]: the first splits[0] rows go to rank 0, the next splits[1] to rank 1, ...; empty: equal
// parts. Returns the rows for this rank in the order of the ranks, and how many came from each.
struct AlltoallResult {
  at::Tensor received;
  std::vector<int64_t> received_splits;
};
AlltoallResult Alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits = {},
                        const ExchangeOptions& options = {});

// True when Synchronize would not wait.
bool Poll(const Handle& handle);
// Returns the result, or throws. Waits at most InitOptions::stall_shutdown for ranks that have not
// submitted.
at::Tensor Synchronize(const Handle& handle);
std::vector<at::Tensor> SynchronizeGroup(const Handle& handle);

// For a rank that has no more data: it takes part in all reductions of the others with zeros until
// all ranks have joined. Returns the rank that joined last. Reductions only: a broadcast, an
// all-gather or an all-to-all of the others fails meanwhile.
int Join();
void Barrier(const ProcessSet& set = {});

// The parameters and buffers of a module by their paths.
std::vector<NamedTensor> NamedParameters(const torch::nn::Module& module);
// All ranks get the values of rank `root_rank`.
void BroadcastParameters(const std::vector<NamedTensor>& parameters, int root_rank);
// The same for the state of an optimizer (moments, steps) and its options (learning rate, ...).
// torch::optim's Adam, AdamW, SGD, RMSprop and Adagrad with one set of groups on all ranks. Ranks
// other than the root may have taken no step yet.
void BroadcastOptimizerState(torch::optim::Optimizer& optimizer, int root_rank);

struct DistributedOptimizerOptions {
  Compression compression = Compression::kNone;
  // Gradients of this many backward passes add up on each rank before they are exchanged.
  int backward_passes_per_step = 1;
  Op op = Op::kAverage;
  // With kAverage: gradients are divided by this before the sum, and by Size() / this after it.
  double gradient_predivide_factor = 1.0;
  // Parameters whose gradients are exchanged together: so many groups, or these. Not both.
  int num_groups = 0;
  std::vector<std::vector<at::Tensor>> groups = {};
  ProcessSet process_set = {};
};

// Exchanges each gradient as soon as a backward pass has it. Each parameter's gradient lies in
// .grad() before Step or Synchronize return. One thread, in which the backward passes run too.
class DistributedOptimizer {
 public:
  // `named_parameters` must name every parameter of the optimizer, each name once; throws kUsage,
  // naming them, where it does not. Empty: names are made of positions.
  DistributedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                       const std::vector<NamedTensor>& named_parameters,
                       const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Throws between a backward pass and Step or Synchronize, where gradients travel.
  void ZeroGrad();
  // Waits for the gradients, for example to clip them before a Step within SkipSynchronize(). A
  // parameter without a gradient counts with zeros.
  void Synchronize();
  // Synchronize, unless within SkipSynchronize, and the optimizer's step().
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
