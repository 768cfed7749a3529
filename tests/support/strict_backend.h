// Simulates a network that is stricter than Gloo, for ranks of a test. All messages between two
// ranks, in both directions, are one sequence, in which a message begins only when the previous
// message is complete. A send completes when it is matched, as with NCCL. The operations are
// recorded for comparison.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

class StrictBackend : public c10d::Backend {
 public:
  // Time after which a wait counts as a deadlock.
  static constexpr std::chrono::seconds kPatience{20};

  struct Operation {
    std::string name;  // "send", "recv", "allreduce" ...
    int peer = -1;
    int64_t bytes = 0;
    std::string dtype;
    bool operator==(const Operation&) const = default;
  };

  // Makes `group` exchange everything through the returned backend from now on. Collectives are
  // passed on to the group's former backend. Call this function on all ranks.
  static c10::intrusive_ptr<StrictBackend> Install(const ProcessGroup& group);

  explicit StrictBackend(c10::intrusive_ptr<c10d::Backend> inner);

  const std::vector<Operation>& operations() const { return operations_; }
  // Throws std::runtime_error if the ranks of the group have not run the same collectives. Also
  // throws if the sends and receives of two ranks do not match in order. All ranks must call it; it
  // uses the group's store.
  void Compare(const ProcessGroup& group) const;

  const std::string getBackendName() const override { return "strict"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  void shutdown() override { inner_->shutdown(); }

 private:
  struct Row;
  class RowWork;

  void Note(const char* name, const at::Tensor& tensor, int peer = -1);
  c10::intrusive_ptr<c10d::Work> Append(int peer, c10d::OpType type,
                                        std::vector<at::Tensor>& tensors);

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::vector<std::shared_ptr<Row>> rows_;  // messages by peer
  std::vector<Operation> operations_;
};

}  // namespace dslaunch
