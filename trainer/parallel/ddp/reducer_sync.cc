#include "trainer/parallel/ddp/reducer_sync.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "trainer/parallel/gradient_scale.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {
namespace {

// Size of a bucket over shared memory, in bytes. Messages in shared memory are cheap, so buckets
// are small and more of them are sent before the backward pass ends.
constexpr int64_t kSharedBucketBytes = 2 << 20;

}  // namespace

// Communication hook of the reducer: scales a bucket, sums it over the ranks in the communication
// dtype, and scales the sum.
class ReducerSync::ScaledSum : public c10d::CommHookInterface {
 public:
  ScaledSum(c10::intrusive_ptr<c10d::ProcessGroup> group, at::ScalarType dtype, GradientScale scale)
      : group_(std::move(group)), dtype_(dtype), scale_(scale) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    if (alone_) {
      works_.emplace_back();
      auto own = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
      own->markCompleted(bucket.getBuffer());
      return own;
    }
    std::vector<at::Tensor> messages = {bucket.getBuffer().to(dtype_)};
    if (scale_.before != 1) messages[0].mul_(scale_.before);
    works_.push_back(group_->allreduce(messages));
    return works_.back()->getFuture();
  }

  // Waits for the sum of the next bucket and scales it. The reducer calls this in the thread of the
  // backward pass, in the order of the buckets. The reducer copies the result into its bucket
  // unless the result is the bucket's tensor.
  at::Tensor parseHookResult(const c10::IValue& result) override {
    // A backend may complete a future before its work and the profiler's event end, so this also
    // waits for the work.
    if (works_.front()) works_.front()->wait();
    works_.pop_front();
    at::Tensor sum = c10d::detail::parseCppCommHookResult(result);
    if (scale_.after != 1) sum.mul_(scale_.after);
    return sum;
  }

  bool under_way() const { return !works_.empty(); }
  // Waits for all sums without reading them.
  void Await() {
    for (const auto& work : works_) {
      if (work) work->wait();
    }
    works_.clear();
  }
  // Selects whether this rank's gradients are used as the sum and nothing is sent.
  void SetAlone(bool alone) { alone_ = alone; }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  at::ScalarType dtype_;
  GradientScale scale_;
  // Works whose results were not read yet, in the order of the buckets.
  std::deque<c10::intrusive_ptr<c10d::Work>> works_;
  bool alone_ = false;
};

// Makes the same calls on the reducer, in the same order, as torch's DistributedDataParallel.
ReducerSync::ReducerSync(const ProcessGroup& group, std::vector<NamedTensor> parameters,
                         std::vector<at::Tensor> buffers, const GradSyncOptions& options)
    : group_(group),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(options),
      arrivals_(parameters_, [](size_t) {}) {
  std::vector<at::Tensor> tensors;
  std::unordered_map<size_t, std::string> names;
  for (const NamedTensor& parameter : parameters_) {
    names.emplace(tensors.size(), parameter.name);
    tensors.push_back(parameter.tensor);
  }
  BroadcastFromRank0(group_, tensors);
  BroadcastFromRank0(group_, buffers_);

  // The reducer begins with one bucket. In the first backward pass it records the order of
  // gradients. It then makes its final buckets, with a small one first so that communication starts
  // early. The reducer counts bytes in the parameters' dtype.
  int64_t bucket_bytes = std::numeric_limits<int64_t>::max();
  if (options_.overlap) {
    const int64_t message_bytes = group_.shares_memory() && group_.device().is_cpu()
                                      ? std::min(options_.bucket_bytes, kSharedBucketBytes)
                                      : options_.bucket_bytes;
    bucket_bytes = message_bytes *
                   static_cast<int64_t>(c10::elementSize(options_.accumulation_dtype)) /
                   static_cast<int64_t>(c10::elementSize(options_.communication_dtype));
  }
  const int64_t first_bucket_bytes =
      options_.overlap ? std::min<int64_t>(bucket_bytes, c10d::kDefaultFirstBucketBytes)
                       : bucket_bytes;
  const std::vector<bool> expect_sparse(tensors.size(), false);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      tensors, {std::numeric_limits<size_t>::max()}, expect_sparse);
  std::reverse(buckets.begin(), buckets.end());
  reducer_ = std::make_unique<c10d::Reducer>(
      std::move(tensors), std::move(buckets), group_.c10d_group(), expect_sparse, bucket_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, std::move(names),
      first_bucket_bytes, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>());
  auto sum = std::make_unique<ScaledSum>(group_.c10d_group(), options_.communication_dtype,
                                         ScaleOf(options_, group_.world_size()));
  sum_ = sum.get();
  reducer_->register_comm_hook(std::move(sum));
}

void ReducerSync::Begin(bool sync) {
  if (sync) reducer_->prepare_for_forward();
  reducer_->rebuild_buckets();
}

void ReducerSync::BeforeBackward(bool last) {
  if (!last) {
    accumulates_ = true;
    return;
  }
  arrivals_.ExpectOnce();
  reduces_ = true;
  // Without this call the backward pass would reduce nothing and report no error, so each rank
  // would train separately.
  reducer_->prepare_for_backward({});
}

void ReducerSync::AfterBackward() {
  if (!reduces_) return;
  if (!arrivals_.complete()) {
    if (!options_.ignore_unused) return;  // Gradients() later throws for the missing gradient
    Supply(0);
  }
  reduces_ = false;
}

// The reducer waits for the gradient of every parameter, so a parameter that the program has frozen
// since construction is unfrozen for this call.
void ReducerSync::Supply(double value) {
  torch::autograd::variable_list unused, gradients;
  std::vector<at::Tensor> frozen;
  const auto freeze_again = c10::make_scope_exit([&frozen] {
    for (at::Tensor& parameter : frozen) parameter.set_requires_grad(false);
  });
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (arrivals_.arrived(i)) continue;
    at::Tensor& parameter = unused.emplace_back(parameters_[i].tensor);
    if (!parameter.requires_grad()) frozen.push_back(parameter.set_requires_grad(true));
    gradients.push_back(at::full_like(parameters_[i].tensor.detach(), value));
  }
  torch::autograd::backward(unused, gradients);
}

std::vector<at::Tensor> ReducerSync::Gradients() {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    gradients.push_back(arrivals_.arrived(i) ? parameters_[i].tensor.grad() : at::Tensor());
  }
  return gradients;
}

void ReducerSync::Clear() {
  DropGradients();
  BroadcastFromRank0(group_, buffers_);
}

void ReducerSync::DropGradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  arrivals_.AllowAny();
}

void ReducerSync::GiveUp() {
  if (reduces_ && !arrivals_.complete()) {
    sum_->SetAlone(!sum_->under_way());
    Supply(std::numeric_limits<double>::quiet_NaN());
    sum_->SetAlone(false);
  } else if (reduces_) {  // if the backward pass threw after its last gradient
    sum_->Await();
    reducer_->reset_state();
  }
  reduces_ = false;
  DropGradients();
}

int64_t ReducerSync::gradient_bytes() const {
  int64_t elements = 0;
  for (const NamedTensor& parameter : parameters_) elements += parameter.tensor.numel();
  return elements * static_cast<int64_t>(c10::elementSize(options_.accumulation_dtype));
}

int64_t ReducerSync::bucket_bytes() const {
  const auto size = [](at::ScalarType dtype) {
    return static_cast<int64_t>(c10::elementSize(dtype));
  };
  // After their first exchange, gradients are views of the reducer's buckets. Gradients that
  // accumulate before the first exchange have separate memory.
  int64_t bytes = accumulates_ ? gradient_bytes() : 0;
  if (options_.communication_dtype != options_.accumulation_dtype) {
    bytes +=
        gradient_bytes() / size(options_.accumulation_dtype) * size(options_.communication_dtype);
  }
  return bytes;
}

}  // namespace dslaunch
