// Reduces the gradients of a sharded model's units (flat_parameter.h) at ZeRO stages 1 to 3.
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

// Accumulates and reduces gradients. Each unit has a flat gradient into which gradients are written
// as they arrive. Each rank keeps its part of the flat gradient's sum over the ranks. A unit is
// sent as soon as it is complete, while the backward pass continues; without overlap its sum is
// awaited at once. All ranks send units in the order in which they were added. At most
// kMostUnderWay units are in transit, so that buckets take little memory. Not thread-safe. Throws
// the exceptions of ShardExchange while waiting.
class UnitGradients {
 public:
  struct Settings {
    GradSyncOptions sync;
    // Dtype to which sums are rounded, unless the dtype of a parameter is wider.
    at::ScalarType sum_dtype = at::kFloat;
    ZeroConfig zero;
    // True if whole gradients accumulate and are reduced once per step. If false, they are reduced
    // in every backward pass, and only this rank's part of the sum accumulates.
    bool accumulates_whole = true;
  };
  // Creates an object without units. `group` and `exchange` must outlive it.
  UnitGradients(const ProcessGroup& group, const ShardExchange& exchange, Settings settings);

  // Adds a unit and returns its number. `channel` is the unit's channel of the exchange, and
  // `parameters` are the tensor options of its flat parameters.
  size_t Add(const FlatParameter& layout, int channel, const at::TensorOptions& parameters);

  // Returns this rank's part of the sum, [n] in the accumulation dtype. Valid after AwaitSent.
  const at::Tensor& Part(size_t unit) const { return units_[unit].part; }
  // Returns the tensor, [ranks * n], into which a unit's gradients are written when they arrive.
  const at::Tensor& Arriving(size_t unit);

  // Allocates the whole gradients that were freed after the last step. Does nothing unless
  // accumulates_whole.
  void MakeWhole();
  // Begins a new reduction, in which every gradient of every unit is expected. Precondition: no
  // unit is in transit.
  void ExpectAll();
  // Counts one more parameter of `unit` whose gradient was written or will not arrive.
  void Count(size_t unit) { --units_[unit].awaited; }
  // Sends each complete unit if all units before it are complete.
  void SendComplete();
  // Waits for the sums of all units that were sent.
  void AwaitSent();
  // Waits for sent units and drops all gradients, before a new step.
  void Drop();
  // Sends NaN in place of units that will not become complete, if other ranks wait for these units.
  void GiveUp();
  // Frees the buckets of the current reduction.
  void FreeBuckets();

  int64_t live_bytes() const { return live_bytes_; }  // returns the current size of all buckets
  int64_t peak_bytes() const { return peak_bytes_; }  // returns the largest live_bytes() so far

 private:
  struct Unit {
    std::string name;  // unit's name in messages
    int channel = 0;
    size_t parameters = 0;  // number of parameters in the unit
    at::ScalarType dtype;   // dtype of the unit's parameters
    // Whole gradients, [ranks * n] in the accumulation dtype; only if accumulates_whole.
    at::Tensor whole;
    at::Tensor part;         // this rank's part of the sum, [n]; at stage 1 a view of `whole`
    bool is_filled = false;  // true if `part` already has gradients of this step
    // The next members describe the current reduction.
    size_t awaited = 0;  // number of gradients that have not arrived yet
    at::Tensor message;  // data to send, [ranks * n] in the dtype of messages
    at::Tensor sum;      // this rank's part of the message's sum, [n] in the accumulation dtype
    c10::intrusive_ptr<c10d::Work> all_reduce;
    Exchange all_reduce_exchange;
    PendingExchange exchange;
    // Size of `message`, `sum` and the exchange's received parts, in bytes.
    int64_t bucket_bytes = 0;
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
  // Numbers of units in the current reduction that were sent, and whose sums were awaited.
  size_t sent_ = 0, awaited_ = 0;
  int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace dslaunch
