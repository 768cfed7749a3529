// ZeRO stage 3: gathers whole parameters for the operations that read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/parallel/shard_exchange.h"

namespace dslaunch {

// Numbers of elements. The names are DeepSpeed's, without stage3_.
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool overlap = true;  // gather ahead, while operations run
};

// Counts since the last Begin.
struct GatherCounts {
  int64_t units = 0;  // gathers, of the same unit too
  int64_t ahead = 0;  // gathers begun before the operation that read the unit
  int64_t bytes = 0;  // gathered, the parts of all ranks together
  int64_t peak_live_elements = 0;
};

// The parameters of a unit are views of its `flat`, whose memory is allocated and freed as needed;
// its shard stays. A dispatch mode of this thread sees the inputs of every operation, in backward
// passes too, finds units by their storage, and gathers and holds them while the operation runs. A
// model needs no change. Code that reads memory without an operation (data_ptr(), torch::save), or
// in another thread, must do so while the units are held by Unshard; otherwise it throws c10::Error
// that names the unit, with a text for which IsNotGathered (trainer/comm/explain.h) is true. An
// operation that writes to a parameter throws too: the value would be lost. A view of a parameter
// (t(), narrow(), detach()) gathers nothing.
//
// In a pass (Begin to End) a gathered unit stays as long as the limits allow:
// - At most max_live_parameters are live, except for the needs of one operation.
// - Each pass is expected to read what the last one of its kind (training or inference) read, in
//   the same order. Then a unit is released as soon as an operation has run, if more than
//   max_reuse_distance elements are read before its next use, and more than prefetching would
//   gather again. The next units are gathered ahead, at most prefetch_bucket_size elements. If
//   there
//   is no room, the unit whose next use is farthest is released first.
// - In a first pass, or one that has left the expected order, nothing is gathered ahead, at most
//   max_reuse_distance elements are live as well, and when a unit needs room the least recently
//   used one is released: consecutive operations that read one unit gather it once, whatever the
//   limits. All of this follows from the order of operations alone, so it is the same on all ranks.
//
// Outside of a pass an operation that reads a unit throws TrainError kBadInput that names the unit
// and GatheredParameters.
//
// Autocast's copies of weights are whole parameters, which its cache and the backward pass would
// keep. So in a pass the cache is off, and instead of a copy autocast gets a unit in its dtype,
// which is gathered from cast shards, released and gathered again as any other, with the same
// values.
//
// On a device the host does not wait: a unit's memory is allocated in the stream that first reads
// it (or gathers it ahead), and the operation is ordered after the exchange. An operation in
// another stream waits for the first stream, and the memory is reused only after both.
//
// A unit that stays always has memory. Refresh may request its other parts long before they are
// read: only an operation that reads the unit waits for them, and the mode is on until all parts
// have arrived.
//
// One thread at a time: on a device backward passes run in autograd's own thread there, which has
// this thread's dispatch modes. Every rank must run the same operations.
class ParameterGatherer {
 public:
  struct Unit {
    std::string name;  // module path, for messages
    at::Tensor flat;   // [world_size * n], model dtype; all of its storage (MakeFlat)
    // [n], this rank's part; read whenever the unit is gathered; pinned memory is read without
    // waiting.
    at::Tensor shard;
    bool stays = false;  // `flat` has memory, and keeps it; `shard` is this rank's part of it
  };

  // Returns a tensor [elements] of which views can be made, though it has no memory yet.
  static at::Tensor MakeFlat(int64_t elements, const at::TensorOptions& options);

  // The owner of a parameter's memory.
  enum class Owner {
    kOther,         // not a gatherer
    kGatherer,      // a gatherer
    kGoneGatherer,  // a gatherer that was destroyed: the values are lost
  };
  static Owner OwnerOf(const at::Tensor& tensor);

  // Frees the memory of every `flat` that does not stay. `exchange` must outlive this; unit i uses
  // channel first_channel + i.
  ParameterGatherer(const ShardExchange& exchange, int first_channel, std::vector<Unit> units,
                    const GatherLimits& limits);
  // Must run in the thread of the constructor. Tensors that still refer to the units' storage have
  // no memory then: reading them throws an error that names the unit.
  ~ParameterGatherer();
  ParameterGatherer(const ParameterGatherer&) = delete;
  ParameterGatherer& operator=(const ParameterGatherer&) = delete;

  // Begins a forward pass (and the backward pass after it, if `trains`). End ends it; then only
  // units held by Unshard are live. Begin ends an open pass first, so an exception in the middle of
  // a pass needs nothing else, if it comes on all ranks. Throws TrainError kBadInput in any
  // thread but the constructor's.
  void Begin(bool trains);
  void End();
  // Throws as Begin does.
  void CheckThread() const;

  // Collective. Makes these units whole and writable until as many calls of Reshard, the last of
  // which frees them. Throws as Begin does. With `keep` Reshard copies this rank's part of the
  // written values into its shard.
  void Unshard(const std::vector<size_t>& units);
  void Reshard(const std::vector<size_t>& units, bool keep);

  // Collective. Requests the other ranks' parts of these units, which stay, in this order. The
  // units must not be written to until they are read or Settle returns.
  void Refresh(const std::vector<size_t>& units);
  // Waits for all units that Refresh has requested and no operation has read yet. Not needed before
  // Begin and Unshard.
  void Settle();
  int64_t awaited_units() const;  // requested by Refresh and not yet waited for

  bool live(size_t unit) const;   // whether `flat` has memory
  int64_t live_elements() const;  // includes units that are being gathered
  const GatherCounts& counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
