// The ranks of the job as one c10d process group: over memory that they share where all are on one
// host (unless one has DSLAUNCH_SHM_DISABLE=1 in its environment), else over Gloo.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dslaunch {

class DesyncDetector;
struct RankDevice;
struct WorkerEnv;

// kAverage is the sum divided by the number of ranks.
enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

// Collectives must be called by every rank in the same order, from one thread, with tensors on the
// CPU or on device(), of the same shape and dtype; memory may be laid out in any way, and autograd
// sees nothing of it. They return when the result is there; of tensors on a GPU, when the current
// stream will have it. What a caller can mend is thrown as TrainError before anything is sent: a
// rank out of range, a tensor that is not dense or on another device, a dtype that cannot be
// reduced. What happens on the way is an exception of c10 or std. Every wait ends after
// kConnectTimeout or kCollectiveTimeout.
class ProcessGroup {
 public:
  static constexpr std::chrono::minutes kConnectTimeout{5};
  static constexpr std::chrono::minutes kCollectiveTimeout{10};
  static constexpr std::chrono::minutes kFinishTimeout{1};

  // Meets the other ranks at MASTER_ADDR:MASTER_PORT, where rank 0 listens (or torchrun's agent).
  // From then on the process ignores SIGPIPE, unless it has a handler for it.
  explicit ProcessGroup(const WorkerEnv& env);
  // The same for ranks that compute on `device` (trainer/device/accelerator.h).
  ProcessGroup(const WorkerEnv& env, const RankDevice& device);
  // Finish(); nothing for a subgroup. While an exception is passing it waits for nobody: the others
  // may be stuck or gone.
  ~ProcessGroup();
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) = delete;

  // Some of the ranks as a group of their own, in which each is what its place in `ranks` says;
  // this rank must be among them. To be called by these ranks, of several such groups in the same
  // order, with a name that no other group of theirs has. Its connections and messages are its own;
  // they stay until this is finished, so that ranks may leave it at different times. It must not
  // outlive this, and needs no Finish.
  ProcessGroup Subgroup(const std::vector<int>& ranks, const std::string& name) const;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  c10::Device device() const;  // that this rank computes on
  const RankDevice& rank_device() const { return *device_; }
  // Whether all ranks are on one host, where CPU tensors go through its memory.
  bool shares_memory() const { return shares_memory_; }
  // What each rank of this is called in messages: its rank among all of the job.
  const std::vector<size_t>& job_ranks() const { return job_ranks_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }
  // Shared by all ranks: small values by key.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  // A beginning for keys of the store that no other call gives; the same on all ranks, where they
  // call it as often.
  std::string NewKey(const std::string& purpose) const;

  // Knows what this rank waits for, for those who exchange tensors through c10d_group() themselves.
  DesyncDetector& desync_detector() const { return *desync_detector_; }

  // Reductions take float, double, half, bfloat16, uint8, int8, int32 and int64; kAverage only the
  // first four. The rest takes any dtype.

  void AllReduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;  // in place
  void Broadcast(at::Tensor& tensor, int root) const;                      // in place
  // [...] of each rank -> [world_size, ...] on all.
  at::Tensor AllGather(const at::Tensor& tensor) const;
  // [world_size, ...] of each rank -> [...]: the reduction of every rank's part for this one.
  at::Tensor ReduceScatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  // To and from another rank; messages between two ranks arrive in order.
  void Send(const at::Tensor& tensor, int to) const;
  void Recv(at::Tensor& tensor, int from) const;
  void Barrier() const;

  // Replaces each value by its sum over all ranks.
  void AllReduceSum(std::vector<double>& values) const;

  // Leaves the group: returns once no rank needs another one any more, so that nobody sees a
  // connection break, or after kFinishTimeout. Nothing else may be called after it.
  void Finish();

 private:
  ProcessGroup(c10::intrusive_ptr<c10d::Store> store, int rank, std::vector<size_t> job_ranks,
               const std::string& name, std::shared_ptr<const RankDevice> device);

  int rank_;
  int world_size_;
  std::vector<size_t> job_ranks_;
  std::shared_ptr<const RankDevice> device_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  bool is_subgroup_ = false;
  bool shares_memory_ = false;
  mutable std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> subgroups_;
  mutable int64_t keys_ = 0;
  std::unique_ptr<DesyncDetector> desync_detector_;
};

// This process's place as its launcher says it (RANK, WORLD_SIZE, MASTER_ADDR ...); without one, a
// world of one. Throws TrainError.
ProcessGroup InitProcessGroup();

}  // namespace dslaunch
