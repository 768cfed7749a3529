#include "trainer/engine/grad_sync.h"

#include <algorithm>
#include <limits>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace dslaunch {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;

// What torch.nn.parallel.DistributedDataParallel does around the reducer, in the same order.
class ReducerSync : public GradSync {
 public:
  ReducerSync(const ProcessGroup& group, std::vector<NamedTensor> parameters,
              std::vector<at::Tensor> buffers)
      : group_(group.c10d_group()),
        parameters_(std::move(parameters)),
        buffers_(std::move(buffers)) {
    std::vector<at::Tensor> tensors;
    std::unordered_map<size_t, std::string> names;
    for (const NamedTensor& parameter : parameters_) {
      names.emplace(tensors.size(), parameter.name);
      tensors.push_back(parameter.tensor);
    }
    c10d::verify_params_across_processes(group_, tensors, std::nullopt);
    Broadcast(tensors);
    if (!buffers_.empty()) Broadcast(buffers_);

    // One bucket at first: the reducer sees in the first backward pass in which order gradients
    // come, and then makes its real buckets.
    const std::vector<bool> expect_sparse(tensors.size(), false);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        tensors, {std::numeric_limits<size_t>::max()}, expect_sparse);
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_unique<c10d::Reducer>(
        std::move(tensors), std::move(buckets), group_, expect_sparse, c10d::kDefaultBucketBytesCap,
        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, std::move(names),
        c10d::kDefaultFirstBucketBytes, /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>());
  }

  void BeforeForward(bool sync) override {
    if (sync) reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
    if (sync && !buffers_.empty()) Broadcast(buffers_);
  }

  // Left out, backward would raise no error and each rank would train apart.
  void AfterForward(bool sync) override {
    if (sync) reducer_->prepare_for_backward({});
  }

  std::vector<at::Tensor> Gradients() override {
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& parameter : parameters_) gradients.push_back(parameter.tensor.grad());
    return gradients;
  }

  void Clear() override {
    for (NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const NamedTensor& parameter : parameters_) {
      bytes += static_cast<int64_t>(parameter.tensor.nbytes());
    }
    return bytes;
  }

 private:
  void Broadcast(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> detached;
    for (const at::Tensor& tensor : tensors) detached.push_back(tensor.detach());
    c10d::broadcast_coalesced(group_, detached, kBroadcastBytes, /*rank=*/0);
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<NamedTensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace

std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers, const GradSyncOptions&) {
  return std::make_unique<ReducerSync>(group, std::move(parameters), std::move(buffers));
}

}  // namespace dslaunch
