// Gradients of the units of a sharded model (flat_parameter.h) in ZeRO stages 1 to 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/comm/collective_progress.h"
#include "trainer/config/zero_config.h"
#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/gradient_scale.h"
#include "trainer/parallel/shard_exchange.h"
#include "trainer/parallel/zero/flat_parameter.h"

namespace dslaunch {

// Each unit has a flat gradient, into which gradients are written as they arrive, and of whose sum
// over the ranks each rank keeps its part. A unit is sent when it is complete, while the backward
// pass goes on; without overlap its sum is awaited at once. Units are sent in the order in which
// they were added, on all ranks. At most kMostUnderWay are on their way, so that buckets take
// little memory. One thread. Waits throw as those of ShardExchange do.
class UnitGradients {
 public:
  struct Settings {
    GradSyncOptions sync;
    at::ScalarType sum_dtype = at::kFloat;  // sums are rounded to it, or to a wider dtype
    ZeroConfig zero;
    // Gradients accumulate whole, and are reduced once a step. Otherwise they are reduced in every
    // backward pass, and only this rank's part of the sum accumulates.
    bool accumulates_whole = true;
  };
  // `group` and `exchange` must outlive this.
  UnitGradients(const ProcessGroup& group, const ShardExchange& exchange, Settings settings);

  // Adds a unit, and returns its number here. `channel` is its channel of the exchange,
  // `parameters` the options of its flat parameters.
  size_t Add(const FlatParameter& layout, int channel, const at::TensorOptions& parameters);

  // [n], accumulation dtype: this rank's part of the sum. Holds it after AwaitSent.
  const at::Tensor& Part(size_t unit) const { return units_[unit].part; }
  // [ranks * n]: the tensor into which gradients of a unit are written when they arrive.
  const at::Tensor& Arriving(size_t unit);

  // Allocates what accumulates whole and was freed after the last step.
  void MakeWhole();
  // Every gradient of every unit is awaited again. Nothing may be on its way.
  void ExpectAll();
  // One more gradient of `unit` is in its place, or none will come.
  void Count(size_t unit) { --units_[unit].awaited; }
  // Sends the units that are complete and whose predecessors are.
  void SendComplete();
  // Waits for all that was sent.
  void AwaitSent();
  // The next gradients are those of a new step.
  void Drop();
  // Sends NaN in place of units that will not be complete, if other ranks await them.
  void GiveUp();
  // Frees the buckets of this reduction.
  void FreeBuckets();

  // Memory of messages on their way.
  int64_t live_bytes() const { return live_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Unit {
    std::string name;  // in messages
    int channel = 0;
    size_t parameters = 0;   // number of them
    at::ScalarType dtype;    // of the parameters
    at::Tensor whole;        // [ranks * n], accumulation dtype, if it accumulates whole
    at::Tensor part;         // [n]: this rank's part, reduced; at stage 1 a part of `whole`
    bool is_filled = false;  // whether `part` holds anything of this step
    // This reduction:
    size_t awaited = 0;  // gradients that have not arrived yet
    at::Tensor message;  // [ranks * n], MessageDtype
    at::Tensor sum;      // [n], accumulation dtype
    c10::intrusive_ptr<c10d::Work> all_reduce;
    Exchange all_reduce_exchange;
    PendingExchange exchange;
    int64_t bucket_bytes = 0;  // bytes of `message`, `sum` and the exchange's received parts
  };

  void Send(Unit& unit);
  void Await(Unit& unit);
  at::ScalarType SumDtypeOf(const Unit& unit) const;
  void CountBucket(Unit& unit, int64_t bytes);
  void FreeBucket(Unit& unit);

  const ProcessGroup& group_;
  const ShardExchange& exchange_;
  const Settings settings_;
  const GradientScale scale_;
  std::vector<Unit> units_;
  size_t sent_ = 0, awaited_ = 0;  // units, in this reduction
  int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace dslaunch
