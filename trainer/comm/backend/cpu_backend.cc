#include "trainer/comm/backend/cpu_backend.h"

#include <ATen/ATen.h>

#include <utility>

namespace dslaunch {

using Tensors = CpuBackend::Tensors;
template <class Value>
using Ref = c10::intrusive_ptr<Value>;

Ref<c10d::Work> CpuBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return Begin(c10d::OpType::ALLREDUCE, "all_reduce", tensors,
               AllReduce(TheOne(tensors), options.reduceOp));
}

Ref<c10d::Work> CpuBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  Check(input);
  Check(output);
  const bool fits =
      input.dtype() == output.dtype() ||
      (reduces_to_other_dtypes() && input.is_floating_point() && output.is_floating_point());
  TORCH_CHECK(input.numel() == output.numel() * getSize() && fits, name_,
              ": reduce-scatter needs an input of world_size times the size of the output");
  return Begin(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", {input, output},
               ReduceScatter(input, output, options.reduceOp));
}

Ref<c10d::Work> CpuBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return Begin(c10d::OpType::BROADCAST, "broadcast", tensors,
               Broadcast(TheOne(tensors), static_cast<size_t>(options.rootRank)));
}

Ref<c10d::Work> CpuBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions&) {
  const at::Tensor& input = TheOne(inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()), name_,
              ": all-gather needs one output for each rank");
  for (const at::Tensor& output : outputs[0]) {
    Check(output);
    TORCH_CHECK(output.nbytes() == input.nbytes(), name_,
                ": all-gather's outputs must have the size of its input");
  }
  Tensors held = outputs[0];
  held.push_back(input);
  return Begin(c10d::OpType::ALLGATHER, "all_gather", std::move(held),
               AllGather(input, outputs[0]));
}

Ref<c10d::Work> CpuBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  Check(output);
  TORCH_CHECK(output.numel() == input.numel() * getSize() && input.dtype() == output.dtype(), name_,
              ": all-gather needs an output of world_size times the size of the input");
  std::vector<Tensors> outputs = {output.view({getSize(), input.numel()}).unbind(0)};
  Tensors inputs = {input};
  return allgather(outputs, inputs, options);
}

Ref<c10d::Work> CpuBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<int64_t>& output_sizes,
                                          std::vector<int64_t>& input_sizes,
                                          const c10d::AllToAllOptions&) {
  Check(input);
  Check(output);
  TORCH_CHECK(output_sizes.empty() && input_sizes.empty() && input.nbytes() == output.nbytes() &&
                  input.numel() % getSize() == 0,
              name_, ": all-to-all needs parts of equal size");
  return Begin(c10d::OpType::ALLTOALL_BASE, "all_to_all", {input, output}, AllToAll(input, output));
}

Ref<c10d::Work> CpuBackend::barrier(const c10d::BarrierOptions&) {
  return Begin(c10d::OpType::BARRIER, "barrier", {}, Barrier());
}

Ref<c10d::Work> CpuBackend::send(Tensors& tensors, int to, int tag) {
  return Begin(c10d::OpType::SEND, "send", tensors,
               Send(PeerOf(to), static_cast<uint64_t>(tag), TheOne(tensors)));
}

Ref<c10d::Work> CpuBackend::recv(Tensors& tensors, int from, int tag) {
  return Begin(c10d::OpType::RECV, "recv", tensors,
               Receive(PeerOf(from), static_cast<uint64_t>(tag), TheOne(tensors)));
}

void CpuBackend::Check(const at::Tensor& tensor) const {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.is_contiguous(), name_,
              ": tensors must be contiguous and on the CPU");
}

const at::Tensor& CpuBackend::TheOne(const Tensors& tensors) const {
  TORCH_CHECK(tensors.size() == 1, name_, ": exactly one tensor is supported");
  Check(tensors[0]);
  return tensors[0];
}

size_t CpuBackend::PeerOf(int rank) const {
  TORCH_CHECK(rank >= 0 && rank < getSize() && rank != getRank(), name_, ": rank ", rank,
              " is not another rank of the group");
  return static_cast<size_t>(rank);
}

Ref<c10d::Work> CpuBackend::Begin(c10d::OpType type, const char* what, Tensors held,
                                  const Start& start) {
  const std::string title = name_ + ":" + what;
  const auto work =
      c10::make_intrusive<QueuedWork>(getRank(), type, title.c_str(), std::move(held));
  start(work);
  return work;
}

}  // namespace dslaunch
