// Simulates the other ranks of a group: each has the same data and makes the same calls as this
// rank. So sums are this rank's values times the number of ranks. A message received from another
// rank is the message that this rank sent to that rank. No data leaves the process.
#pragma once

#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace dslaunch {

class EchoBackend : public c10d::Backend {
 public:
  EchoBackend(int rank, int ranks) : Backend(rank, ranks) {}

  int64_t sent_bytes() const { return sent_bytes_; }

  const std::string getBackendName() const override { return "echo"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  void shutdown() override {}

 private:
  // Messages that this rank has sent and has not received back yet, by peer and tag.
  std::map<std::pair<int, int>, std::vector<at::Tensor>> sent_;
  int64_t sent_bytes_ = 0;
};

}  // namespace dslaunch
