// Implements the common part of the backends between ranks on CPUs: the interface of c10d and the
// checks of arguments. Each backend implements the transfer of bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "trainer/comm/backend/queued_work.h"

namespace dslaunch {

class CpuBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  template <class Value>
  using Ref = c10::intrusive_ptr<Value>;

  // Stores `name`, which is used in error messages and in the profiler's titles, such as
  // "shm:all_reduce".
  CpuBackend(std::string name, int rank, int ranks)
      : Backend(rank, ranks), name_(std::move(name)) {}

  const std::string getBackendName() const final { return name_; }

  // Implements c10d::Backend. Tensors must be contiguous and on the CPU. Throws c10::Error for
  // invalid arguments.
  Ref<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) final;
  Ref<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                       const c10d::ReduceScatterOptions& options) final;
  Ref<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) final;
  Ref<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                            const c10d::AllgatherOptions& options) final;
  Ref<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::AllgatherOptions& options) final;
  Ref<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                std::vector<int64_t>& output_sizes,
                                std::vector<int64_t>& input_sizes,
                                const c10d::AllToAllOptions& options) final;
  Ref<c10d::Work> barrier(const c10d::BarrierOptions& options) final;
  Ref<c10d::Work> send(Tensors& tensors, int to, int tag) final;
  Ref<c10d::Work> recv(Tensors& tensors, int from, int tag) final;

 protected:
  // Begins an operation; the backend later calls work->End().
  using Start = std::function<void(const Ref<QueuedWork>& work)>;
  // Begins an operation by `start` and returns its work. `what` is the second part of the
  // profiler's title. The tensors in `held` are kept until the operation ends.
  Ref<c10d::Work> Begin(c10d::OpType type, const char* what, Tensors held, const Start& start);

  // Implements the public functions, which have checked the arguments: sizes match, `root` and
  // `peer` are ranks of the group, and `peer` is not this rank.
  virtual Start AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) = 0;
  virtual Start ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                              c10d::ReduceOp::RedOpType op) = 0;
  virtual Start Broadcast(const at::Tensor& tensor, size_t root) = 0;
  virtual Start AllGather(const at::Tensor& input, const Tensors& outputs) = 0;
  virtual Start AllToAll(const at::Tensor& input, const at::Tensor& output) = 0;
  virtual Start Barrier() = 0;
  virtual Start Send(size_t peer, uint64_t tag, const at::Tensor& tensor) = 0;
  virtual Start Receive(size_t peer, uint64_t tag, const at::Tensor& tensor) = 0;

  // Returns whether ReduceScatter's result may have another floating-point dtype than the parts.
  virtual bool reduces_to_other_dtypes() const { return false; }

  static std::byte* BytesOf(const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
  }
  // Returns a callback that ends `work`. A transfer engine calls it when the operation ends.
  static std::function<void(const std::exception_ptr&)> EndOf(const Ref<QueuedWork>& work) {
    return [work](const std::exception_ptr& error) { work->End(error); };
  }

 private:
  void Check(const at::Tensor& tensor) const;
  const at::Tensor& TheOne(const Tensors& tensors) const;
  size_t PeerOf(int rank) const;

  const std::string name_;
};

}  // namespace dslaunch
