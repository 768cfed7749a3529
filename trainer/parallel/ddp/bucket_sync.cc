#include "trainer/parallel/ddp/bucket_sync.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "trainer/comm/desync_detector.h"
#include "trainer/parallel/buckets.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {
namespace {

// Maximum number of gradient bytes that one call copies on a device. Starting a copy takes a GPU as
// long as a small copy itself, so small copies are combined.
constexpr int64_t kTogetherBytes = 16 << 20;

int64_t ElementSize(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

}  // namespace

BucketSync::BucketSync(const ProcessGroup& group, std::vector<NamedTensor> parameters,
                       std::vector<at::Tensor> buffers, const GradSyncOptions& options)
    : group_(group),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(options),
      scale_(ScaleOf(options, group.world_size())),
      exchange_(group),
      arrivals_(parameters_, [this](size_t parameter) { Accumulate(parameter); }) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters_) tensors.push_back(parameter.tensor);
  BroadcastFromRank0(group_, tensors);
  BroadcastFromRank0(group_, buffers_);

  std::vector<size_t> backwards(parameters_.size());
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  MakeBuckets(backwards);
}

void BucketSync::MakeBuckets(const std::vector<size_t>& order) {
  buckets_.clear();
  accumulators_.assign(parameters_.size(), {});
  bucket_of_.assign(parameters_.size(), 0);
  filled_.assign(parameters_.size(), false);

  for (const std::vector<size_t>& members : BucketMembers(order)) {
    int64_t elements = 0;
    for (const size_t i : members) elements += parameters_[i].tensor.numel();
    Bucket bucket;
    bucket.parameters = members.size();
    bucket.dtype = MessageDtypeOf(members[0]);
    bucket.sum = at::empty(
        {elements},
        at::TensorOptions(parameters_[members[0]].tensor.device()).dtype(SumDtypeOf(members[0])));
    int64_t start = 0;
    for (const size_t i : members) {
      const at::Tensor& parameter = parameters_[i].tensor;
      accumulators_[i] = bucket.sum.narrow(0, start, parameter.numel()).view(parameter.sizes());
      bucket_of_[i] = buckets_.size();
      start += parameter.numel();
    }
    buckets_.push_back(std::move(bucket));
  }
}

at::ScalarType BucketSync::MessageDtypeOf(size_t parameter) const {
  return MessageDtype(options_, parameters_[parameter].tensor.scalar_type());
}

at::ScalarType BucketSync::SumDtypeOf(size_t parameter) const {
  return AccumulationDtype(options_, parameters_[parameter].tensor.scalar_type());
}

// Returns the parameters of each bucket, in the order in which buckets become complete if gradients
// arrive in `order`. All parameters of a bucket have the same dtype for messages and the same dtype
// for sums.
std::vector<std::vector<size_t>> BucketSync::BucketMembers(const std::vector<size_t>& order) const {
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    bytes.push_back(parameters_[i].tensor.numel() * ElementSize(MessageDtypeOf(i)));
  }
  std::map<std::pair<at::ScalarType, at::ScalarType>, std::vector<size_t>> by_dtypes;
  std::vector<size_t> arrival(parameters_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    by_dtypes[{MessageDtypeOf(order[i]), SumDtypeOf(order[i])}].push_back(order[i]);
    arrival[order[i]] = i;
  }
  std::vector<std::vector<size_t>> buckets;
  for (const auto& [dtypes, members] : by_dtypes) {
    std::ranges::move(AssignBuckets(bytes, members, options_.bucket_bytes),
                      std::back_inserter(buckets));
  }
  std::ranges::sort(buckets, {},
                    [&](const std::vector<size_t>& members) { return arrival[members.back()]; });
  return buckets;
}

void BucketSync::Begin(bool sync) {
  sync_ = sync;
  last_ = false;
  sent_ = 0;
}

void BucketSync::BeforeBackward(bool last) {
  if (!last) return;
  last_ = true;
  arrivals_.ExpectOnce();
  for (Bucket& bucket : buckets_) bucket.awaited = bucket.parameters;
}

void BucketSync::Accumulate(size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const size_t bucket = bucket_of_[parameter];
  if (filled_[parameter]) {
    CopyWaiting();  // copies an earlier gradient of this parameter that may still be waiting
    accumulators_[parameter].add_(gradient);
  } else {
    waiting_bytes_ += static_cast<int64_t>(gradient.nbytes());
    waiting_.push_back(gradient);
    waiting_into_.push_back(accumulators_[parameter]);
    filled_[parameter] = true;
    if (gradient.is_cpu() || waiting_bytes_ >= kTogetherBytes) CopyWaiting();
  }
  gradient.reset();
  if (!last_) return;
  --buckets_[bucket].awaited;
  if (options_.overlap) SendComplete();
}

void BucketSync::CopyWaiting() {
  if (waiting_.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(waiting_into_, waiting_);
  DropWaiting();
}

void BucketSync::DropWaiting() {
  waiting_.clear();
  waiting_into_.clear();
  waiting_bytes_ = 0;
}

void BucketSync::AfterBackward() {
  CopyWaiting();
  if (!last_) return;
  if (options_.ignore_unused) {
    FillUnused();
  } else if (!arrivals_.complete()) {
    return;
  }
  SendComplete();
}

// Completes the gradients after the last backward pass, when no more gradients can arrive.
void BucketSync::FillUnused() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (arrivals_.arrived(i)) continue;
    if (!filled_[i]) accumulators_[i].zero_();
    --buckets_[bucket_of_[i]].awaited;
  }
}

void BucketSync::End() {
  if (!sync_) return;
  if (!last_) SendAll();
  // Gradients() throws for the missing gradient, so the remaining buckets are not sent here.
  if (last_ && !options_.ignore_unused && !arrivals_.complete()) return;
  AwaitAll();
}

// Sends all buckets when all gradients have arrived. Called by End if no backward pass was the
// last.
void BucketSync::SendAll() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!filled_[i]) accumulators_[i].zero_();
  }
  for (Bucket& bucket : buckets_) bucket.awaited = 0;
  SendComplete();
}

void BucketSync::SendComplete() {
  if (group_.world_size() == 1) return;
  for (; sent_ < buckets_.size() && buckets_[sent_].awaited == 0; ++sent_) {
    CopyWaiting();
    Send(buckets_[sent_], static_cast<int>(sent_));
  }
}

void BucketSync::Send(Bucket& bucket, int channel) {
  const int64_t elements = bucket.sum.numel();
  const int64_t ranks = group_.world_size();
  if (bucket.dtype == bucket.sum.scalar_type()) {
    bucket.message = bucket.sum;
    if (scale_.before != 1) bucket.message.mul_(scale_.before);
    return AllReduce(bucket);
  }
  if (!bucket.sum.is_cpu()) {  // a device's backend adds up in the dtype of the message
    bucket.message = bucket.sum.to(bucket.dtype);
    if (scale_.before != 1) bucket.message.mul_(scale_.before);
    return AllReduce(bucket);
  }
  const int64_t part = (elements + ranks - 1) / ranks;
  bucket.message = at::empty({ranks * part}, bucket.sum.options().dtype(bucket.dtype));
  bucket.message.narrow(0, 0, elements).copy_(bucket.sum);
  if (scale_.before != 1) bucket.message.mul_(scale_.before);
  bucket.part = at::empty({part}, bucket.message.options());
  bucket.exchange = exchange_.ReduceScatter(bucket.message, bucket.part, channel);
}

void BucketSync::AllReduce(Bucket& bucket) {
  std::vector<at::Tensor> messages = {bucket.message};
  bucket.begun = group_.desync_detector().Begin("gradients");
  bucket.work = group_.c10d_group()->allreduce(messages);
}

void BucketSync::AwaitAll() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < sent_; ++i) {
    Bucket& bucket = buckets_[i];
    if (bucket.work) continue;
    bucket.exchange.Wait();
    const int64_t part = bucket.part.numel();
    bucket.message.narrow(0, part * group_.rank(), part).copy_(bucket.part);
    bucket.part.reset();
    bucket.exchange = exchange_.AllGather({.flat = bucket.message, .channel = static_cast<int>(i)});
  }
  for (size_t i = 0; i < sent_; ++i) {
    Bucket& bucket = buckets_[i];
    if (bucket.work) {
      group_.desync_detector().Wait(bucket.begun, bucket.work);
      bucket.work.reset();
    } else {
      bucket.exchange.Wait();
    }
    if (!bucket.message.is_same(bucket.sum)) {
      bucket.sum.copy_(bucket.message.narrow(0, 0, bucket.sum.numel()));
    }
    bucket.message.reset();
    if (scale_.after != 1) bucket.sum.mul_(scale_.after);
  }
  sent_ = 0;
}

std::vector<at::Tensor> BucketSync::Gradients() {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool there = options_.ignore_unused || (last_ ? arrivals_.arrived(i) : filled_[i]);
    gradients.push_back(there ? accumulators_[i] : at::Tensor());
  }
  return gradients;
}

void BucketSync::Clear() {
  // This value is equal on all ranks, so all ranks reorder their buckets in the same step.
  const bool reorders = !reordered_ && last_;
  DropGradients();
  if (reorders) {
    std::vector<size_t> arrived = arrivals_.order();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!arrivals_.arrived(i)) arrived.push_back(i);
    }
    at::Tensor order = at::empty({static_cast<int64_t>(parameters_.size())}, at::kLong);
    std::copy(arrived.begin(), arrived.end(), order.data_ptr<int64_t>());
    group_.Broadcast(order, 0);
    const int64_t* first = order.const_data_ptr<int64_t>();
    MakeBuckets({first, first + order.numel()});
    reordered_ = true;
  }
  BroadcastFromRank0(group_, buffers_);
}

void BucketSync::DropGradients() {
  // If a hook threw, the gradient is still in .grad(), so the gradients are freed here.
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  DropWaiting();
  filled_.assign(parameters_.size(), false);
  last_ = false;
  arrivals_.AllowAny();
}

void BucketSync::GiveUp() {
  DropWaiting();
  if (sent_ > 0) {
    const at::NoGradGuard no_grad;
    for (size_t i = sent_; i < buckets_.size(); ++i) {
      buckets_[i].sum.fill_(std::numeric_limits<double>::quiet_NaN());
      buckets_[i].awaited = 0;
    }
    SendComplete();
    AwaitAll();
  }
  sync_ = false;
  DropGradients();
}

int64_t BucketSync::gradient_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += static_cast<int64_t>(bucket.sum.nbytes());
  return bytes;
}

int64_t BucketSync::bucket_bytes() const {
  if (group_.world_size() == 1) return 0;
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.dtype == bucket.sum.scalar_type()) continue;
    bytes += bucket.sum.numel() * ElementSize(bucket.dtype);
  }
  return bytes;
}

}  // namespace dslaunch
