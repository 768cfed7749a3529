// Implements data parallelism for gradients that accumulate in a dtype other than the parameters'
// dtype, or over the backward passes of a batch.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/gradient_scale.h"
#include "trainer/parallel/shard_exchange.h"

namespace dslaunch {

// Accumulates gradients in buckets and reduces the buckets over the ranks. As soon as a backward
// pass has computed a parameter's gradient, it is added to the parameter's part of a bucket and
// freed. In the last backward pass a bucket with all its gradients is cast to its message's dtype
// and sent while the backward pass continues. End sends the remaining buckets, waits for all sums
// and writes them back. All ranks send buckets in the same order, even if they become complete in
// another order, because messages are matched by order.
//
// In the first step buckets follow the parameters in reverse order. From the second step on they
// follow the order in which rank 0 got the gradients of the first step's last backward pass.
class BucketSync : public GradSync {
 public:
  BucketSync(const ProcessGroup& group, std::vector<NamedTensor> parameters,
             std::vector<at::Tensor> buffers, const GradSyncOptions& options);

  void Begin(bool sync) override;
  void BeforeBackward(bool last) override;
  void AfterBackward() override;
  void End() override;
  std::vector<at::Tensor> Gradients() override;
  void Clear() override;
  void DropGradients() override;
  void GiveUp() override;
  int64_t gradient_bytes() const override;
  int64_t bucket_bytes() const override;

 private:
  struct Bucket {
    size_t parameters = 0;
    at::ScalarType dtype = at::kFloat;  // dtype of the message
    at::Tensor sum;      // flat sum over micro-batches, then over ranks, in AccumulationDtype
    size_t awaited = 0;  // number of gradients of the last backward pass that have not arrived
    // The message in `dtype`: `sum` itself if the dtypes are equal, otherwise a copy. On CPUs an
    // all-reduce in 16-bit precision would round after each addend, so the copy is padded to equal
    // parts, and each rank adds up one part in fp32. (Devices do round after each addend;
    // communication_data_type fp32 avoids this.)
    at::Tensor message;
    at::Tensor part;
    c10::intrusive_ptr<c10d::Work> work;
    Exchange begun;  // the exchange that `work` completes
    PendingExchange exchange;
  };

  void MakeBuckets(const std::vector<size_t>& order);  // also drops the accumulated gradients
  at::ScalarType MessageDtypeOf(size_t parameter) const;
  at::ScalarType SumDtypeOf(size_t parameter) const;
  std::vector<std::vector<size_t>> BucketMembers(const std::vector<size_t>& order) const;
  void Accumulate(size_t parameter);  // called when a parameter's gradient arrives
  void CopyWaiting();
  void DropWaiting();
  void FillUnused();
  void SendAll();
  void SendComplete();
  void Send(Bucket& bucket, int channel);
  void AllReduce(Bucket& bucket);
  void AwaitAll();

  const ProcessGroup& group_;
  const std::vector<NamedTensor> parameters_;
  const std::vector<at::Tensor> buffers_;
  const GradSyncOptions options_;
  const GradientScale scale_;
  const ShardExchange exchange_;

  std::vector<Bucket> buckets_;           // buckets in the order in which they are sent
  std::vector<at::Tensor> accumulators_;  // slice of a bucket for each parameter
  std::vector<size_t> bucket_of_;         // index of the bucket of each parameter
  std::vector<bool> filled_;              // for each parameter: true if a gradient was added
  // Gradients of this backward pass that are not copied yet, and the tensors to copy them into.
  std::vector<at::Tensor> waiting_, waiting_into_;
  int64_t waiting_bytes_ = 0;

  bool sync_ = false;  // true if this pass reduces gradients
  bool last_ = false;  // true if the last backward pass has begun
  size_t sent_ = 0;    // number of buckets that were sent
  bool reordered_ = false;
  GradientArrivals arrivals_;  // declared last because its hooks use the other members
};

}  // namespace dslaunch
