#include "trainer/parallel/zero/unit_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "trainer/comm/desync_detector.h"

namespace dslaunch {

UnitGradients::UnitGradients(const ProcessGroup& group, const ShardExchange& exchange,
                             Settings settings)
    : group_(group),
      exchange_(exchange),
      settings_(std::move(settings)),
      scale_(ScaleOf(settings_.sync, group_.world_size())) {}

size_t UnitGradients::Add(const FlatParameter& layout, int channel,
                          const at::TensorOptions& parameters) {
  Unit unit;
  unit.name = layout.name;
  unit.channel = channel;
  unit.parameters = layout.parameters.size();
  unit.dtype = c10::typeMetaToScalarType(parameters.dtype());
  const int64_t n = layout.shard_elements;
  const at::TensorOptions accumulated =
      parameters.dtype(AccumulationDtype(settings_.sync, unit.dtype));
  if (settings_.zero.stage == 1) {
    unit.whole = at::zeros({n * group_.world_size()}, accumulated);
    unit.part = unit.whole.narrow(0, n * group_.rank(), n);
  } else {
    unit.part = at::zeros({n}, accumulated);
  }
  units_.push_back(std::move(unit));
  return units_.size() - 1;
}

const at::Tensor& UnitGradients::Arriving(size_t index) {
  Unit& unit = units_[index];
  if (settings_.accumulates_whole) return unit.whole;
  if (!unit.message.defined()) {
    unit.message = at::empty({unit.part.numel() * group_.world_size()},
                             unit.part.options().dtype(MessageDtype(settings_.sync, unit.dtype)));
    CountBucket(unit, static_cast<int64_t>(unit.message.nbytes()));
  }
  return unit.message;
}

void UnitGradients::MakeWhole() {
  if (!settings_.accumulates_whole) return;
  for (Unit& unit : units_) {
    if (unit.whole.defined()) continue;
    unit.whole = at::empty({unit.part.numel() * group_.world_size()}, unit.part.options());
  }
}

void UnitGradients::ExpectAll() {
  sent_ = awaited_ = 0;
  for (Unit& unit : units_) unit.awaited = unit.parameters;
}

void UnitGradients::SendComplete() {
  for (; sent_ < units_.size() && units_[sent_].awaited == 0; ++sent_) {
    if (sent_ - awaited_ == kMostUnderWay) Await(units_[awaited_++]);
    Send(units_[sent_]);
    if (!settings_.sync.overlap) Await(units_[awaited_++]);
  }
}

void UnitGradients::Send(Unit& unit) {
  if (settings_.accumulates_whole) {
    unit.message = unit.whole.to(MessageDtype(settings_.sync, unit.dtype));
    if (!unit.message.is_same(unit.whole)) {
      CountBucket(unit, static_cast<int64_t>(unit.message.nbytes()));
    }
  }
  if (scale_.before != 1) unit.message.mul_(scale_.before);
  // If the sum need not be added to the sum of earlier micro-batches, it is written directly into
  // `part`.
  const bool adds = !settings_.accumulates_whole && unit.is_filled;
  unit.sum = adds ? at::empty_like(unit.part) : unit.part;
  if (adds) CountBucket(unit, static_cast<int64_t>(unit.sum.nbytes()));
  const std::string what = "the gradients of " + unit.name;
  if (!settings_.zero.reduce_scatter) {
    std::vector<at::Tensor> messages = {unit.message};
    unit.all_reduce_exchange = group_.desync_detector().Begin(what);
    unit.all_reduce = group_.c10d_group()->allreduce(messages);
    return;
  }
  CountBucket(unit, exchange_.ReceivedBytes(unit.message, unit.sum));
  unit.exchange = exchange_.ReduceScatter(unit.message, unit.sum, unit.channel, what);
}

void UnitGradients::AwaitSent() {
  while (awaited_ < sent_) Await(units_[awaited_++]);
}

void UnitGradients::Await(Unit& unit) {
  const at::NoGradGuard no_grad;
  if (unit.all_reduce) {
    group_.desync_detector().Wait(unit.all_reduce_exchange, unit.all_reduce);
    unit.all_reduce.reset();
    const int64_t n = unit.part.numel();
    unit.sum.copy_(unit.message.narrow(0, n * group_.rank(), n));
  } else {
    unit.exchange.Wait();
  }
  const at::ScalarType sum_dtype = SumDtypeOf(unit);
  if (sum_dtype != unit.sum.scalar_type()) unit.sum.copy_(unit.sum.to(sum_dtype));
  if (scale_.after != 1) unit.sum.mul_(scale_.after);
  if (!settings_.accumulates_whole && unit.is_filled) unit.part.add_(unit.sum);
  unit.is_filled = true;
  if (settings_.zero.stage > 1) unit.whole.reset();
  FreeBucket(unit);
}

// Returns the dtype to which the unit's sum is rounded, as at stage 0, which sends the sum back in
// the message's dtype.
at::ScalarType UnitGradients::SumDtypeOf(const Unit& unit) const {
  if (!settings_.sync.keeps_parameter_dtype) return settings_.sum_dtype;
  return at::promote_types(settings_.sum_dtype, unit.dtype);
}

void UnitGradients::Drop() {
  AwaitSent();
  for (Unit& unit : units_) unit.is_filled = false;
}

void UnitGradients::GiveUp() {
  const at::NoGradGuard no_grad;
  if (sent_ == 0) return;
  for (size_t i = sent_; i < units_.size(); ++i) {
    Arriving(i).fill_(std::numeric_limits<double>::quiet_NaN());
    units_[i].awaited = 0;
  }
  SendComplete();
  AwaitSent();
}

void UnitGradients::FreeBuckets() {
  for (Unit& unit : units_) FreeBucket(unit);
}

void UnitGradients::FreeBucket(Unit& unit) {
  unit.message.reset();
  unit.sum.reset();
  live_bytes_ -= unit.bucket_bytes;
  unit.bucket_bytes = 0;
}

void UnitGradients::CountBucket(Unit& unit, int64_t bytes) {
  unit.bucket_bytes += bytes;
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

}  // namespace dslaunch
