// ZeRO stage 3: makes parameters whole for the operations that read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/zero/shard_exchange.h"

namespace dslaunch {

// In elements. The names are DeepSpeed's, without stage3_.
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool overlap = true;  // gather ahead, while operations run
};

// The parameters of a unit are views of its `flat`, whose memory comes and goes; its shard stays. An
// at::RecordFunction callback of this thread sees the inputs of every operation, in backward passes
// too, finds units by their storage and gathers them before the operation reads them. In a pass
// (Begin to End) whatever is read is gathered, and held until its memory is needed for others: at
// most max_live_parameters are live, but for what one operation needs; what will not be read again
// within max_reuse_distance elements goes at once. From the second pass of a kind on, what the first
// one read is gathered ahead, at most prefetch_bucket_size elements. Outside of a pass an operation
// that reads a unit throws TrainError, naming it and GatheredParameters.
//
// One thread, in which the backward passes run too. Every rank must run the same operations.
class ParameterGatherer {
 public:
  struct Unit {
    std::string name;  // module path, for messages
    at::Tensor flat;   // [world_size * n], model dtype; without memory while it is not live
    at::Tensor shard;  // [n], this rank's part
  };

  // Takes the memory of every `flat`. `exchange` must outlive this; unit i travels on channel
  // first_channel + i.
  ParameterGatherer(const ShardExchange& exchange, int first_channel, std::vector<Unit> units,
                    const GatherLimits& limits);
  ~ParameterGatherer();
  ParameterGatherer(const ParameterGatherer&) = delete;
  ParameterGatherer& operator=(const ParameterGatherer&) = delete;

  // A forward pass (and the backward pass after it, where `trains`) begins; it ends with End, after
  // which nothing is live. Begin while one is open ends that first.
  void Begin(bool trains);
  void End();

  // Outside of a pass, collective: makes these units whole and writable until Release, which also
  // takes this rank's part of what was written into its shard where `keep`.
  void Gather(const std::vector<size_t>& units);
  void Release(const std::vector<size_t>& units, bool keep);

  int64_t live_elements() const;
  int64_t peak_live_elements() const;  // since the last Begin

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
