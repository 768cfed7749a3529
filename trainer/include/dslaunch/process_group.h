// Connects the ranks of the job as one c10d process group. It uses shared memory if all ranks are
// on one host and no rank has DSLAUNCH_SHM_DISABLE=1 in its environment. Otherwise it uses
// connections that the nodes' agents provide and protect, or Gloo if there are no agents.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dslaunch {

class BackendWatch;
class DesyncDetector;
struct RankDevice;
struct RankMeeting;
struct WorkerEnv;

// The operation of a reduction. kAverage is the sum divided by the number of ranks.
enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

struct ProcessGroupOptions {
  // The time limit of every collective and of every wait for another rank's message. On timeout the
  // call fails on the ranks that wait. At least one second.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Device for InitProcessGroup. "cuda" selects the GPU with index LOCAL_RANK among the visible
  // GPUs; "auto" selects that GPU if it exists, else "cpu".
  std::string device = "auto";
};

// Connects this rank to the other ranks and provides collectives. Every rank must call the same
// collectives in the same order, from one thread, with tensors of the same shape and dtype. Tensors
// are dense, on the CPU or on device(), with any strides; autograd does not record the operations.
// CPU operations return when the result is complete; GPU operations return when the result is
// ordered on the current stream. Invalid arguments throw TrainError before anything is sent: a rank
// out of range, a tensor that is not dense or on another device, a dtype that cannot be reduced.
// Failures of the communication throw exceptions of c10 or std. Every wait ends after
// kConnectTimeout or timeout().
class ProcessGroup {
 public:
  static constexpr std::chrono::minutes kConnectTimeout{5};
  static constexpr std::chrono::minutes kFinishTimeout{1};

  // Connects to the other ranks through the node's agent (DSLAUNCH_RANK_SOCKET), which only ranks
  // of the job can reach. Without an agent it connects to MASTER_ADDR:MASTER_PORT, where rank 0 (or
  // torchrun's agent) listens. Makes the process ignore SIGPIPE unless the process has a handler
  // for SIGPIPE.
  explicit ProcessGroup(const WorkerEnv& env, const ProcessGroupOptions& options = {});
  // Connects ranks that compute on `device` (trainer/device/accelerator.h). On GPUs of several
  // nodes, rank 0 warns once on stderr that NCCL does not encrypt its traffic.
  ProcessGroup(const WorkerEnv& env, const RankDevice& device,
               const ProcessGroupOptions& options = {});
  // Calls Finish(), except for a subgroup. During stack unwinding it does not wait for other ranks,
  // which may hang or have exited.
  ~ProcessGroup();
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) = delete;

  // Creates a group of some of the ranks, numbered by their position in `ranks`. This rank must be
  // in the list. Collective over these ranks; they must create several groups in the same order.
  // `name` must be unique among the groups of these ranks. The subgroup has its own connections,
  // which stay open until Finish of this group, so ranks may destroy the subgroup at different
  // times. The subgroup must not outlive this group and needs no Finish. Its waits end after
  // `timeout`, which defaults to the timeout of this group.
  ProcessGroup Subgroup(const std::vector<int>& ranks, const std::string& name,
                        std::optional<std::chrono::milliseconds> timeout = {}) const;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  c10::Device device() const;  // returns the device on which this rank computes
  const RankDevice& rank_device() const { return *device_; }
  // Returns the time limit of every wait (ProcessGroupOptions).
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Returns whether all ranks are on one host and exchange CPU tensors through shared memory.
  bool shares_memory() const { return shares_memory_; }
  // Returns whether CPU tensors are exchanged between several hosts, at least one of which has
  // several ranks. A collective of c10d_group() then sends less than messages between all pairs of
  // ranks. The first call waits until all ranks are connected.
  bool sends_by_host() const;
  // Fills in the other ranks' parts of a CPU tensor [world_size * n]. Unlike c10d_group()'s
  // collectives, calls are matched by `channel` and, within a channel, by order. Each rank may make
  // the calls of different channels in any order. Precondition: sends_by_host().
  c10::intrusive_ptr<c10d::Work> GatherByHost(const at::Tensor& flat, int channel) const;
  // Returns, for each rank of this group, its rank in the whole job, which messages name.
  const std::vector<size_t>& job_ranks() const { return job_ranks_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }
  // Returns the key-value store for small values that all ranks share.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  // Returns a unique key prefix for the store. All ranks get the same prefix if they make the same
  // number of calls.
  std::string NewKey(const std::string& purpose) const;

  // Returns the detector that records the exchanges that this rank waits for. Only for code that
  // exchanges tensors through c10d_group() directly.
  DesyncDetector& desync_detector() const { return *desync_detector_; }

  // Reductions support float, double, half, bfloat16, uint8, int8, int32 and int64; kAverage
  // supports only the first four. The other collectives support any dtype.

  // Replaces `tensor` by its reduction over all ranks.
  void AllReduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  // Replaces `tensor` by the tensor of rank `root`.
  void Broadcast(at::Tensor& tensor, int root) const;
  // Gathers tensors of shape [...] from all ranks; returns [world_size, ...] on every rank.
  at::Tensor AllGather(const at::Tensor& tensor) const;
  // Takes a tensor [world_size, ...] on each rank, with one part per rank. Returns the reduction
  // [...] of all ranks' parts for this rank.
  at::Tensor ReduceScatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  // Sends a tensor to another rank. Messages between two ranks arrive in the order of the calls.
  void Send(const at::Tensor& tensor, int to) const;
  // Receives a tensor from another rank into `tensor`, which must have the sent shape and dtype.
  void Recv(at::Tensor& tensor, int from) const;
  void Barrier() const;

  // Replaces each value by its sum over all ranks.
  void AllReduceSum(std::vector<double>& values) const;

  // Disconnects from the group. Returns when all ranks have called it, so that no connection breaks
  // while a rank uses it, or after kFinishTimeout. No other call may follow. The ranks do not wait
  // for the ranks in rank 0's `lost`.
  void Finish(const std::vector<int>& lost = {});

 private:
  friend ProcessGroup GroupWithBackend(int rank, int world_size,
                                       const c10::intrusive_ptr<c10d::Backend>& backend);
  ProcessGroup(RankMeeting meeting, int rank, std::vector<size_t> job_ranks,
               const std::string& name, std::shared_ptr<const RankDevice> device,
               std::chrono::milliseconds timeout);

  std::shared_ptr<const RankMeeting> meeting_;
  int rank_;
  int world_size_;
  std::vector<size_t> job_ranks_;
  std::shared_ptr<const RankDevice> device_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::chrono::milliseconds timeout_;
  bool is_subgroup_ = false;
  bool shares_memory_ = false;
  mutable std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> subgroups_;
  mutable int64_t keys_ = 0;
  std::shared_ptr<DesyncDetector> desync_detector_;
  std::unique_ptr<BackendWatch> backend_watch_;  // monitors the device's backend; null on a CPU
};

// Creates the group from the launcher's environment variables (RANK, WORLD_SIZE, MASTER_ADDR and
// others), or a group of one rank without them. The options choose its device(). The engine moves
// the model to that device, and the program moves its inputs and targets by
// `inputs.to(group.device())`. For a GPU, call it before any other use of LibTorch in the process.
// Throws TrainError; the code is kUnavailable if the requested device does not exist.
ProcessGroup InitProcessGroup(const ProcessGroupOptions& options = {});

}  // namespace dslaunch
