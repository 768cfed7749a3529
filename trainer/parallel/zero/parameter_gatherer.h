// ZeRO stage 3: makes parameters whole for the operations that read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/parallel/shard_exchange.h"

namespace dslaunch {

// In elements. The names are DeepSpeed's, without stage3_.
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool overlap = true;  // gather ahead, while operations run
};

// Since the last Begin.
struct GatherCounts {
  int64_t units = 0;  // gathered, each as often as it was
  int64_t ahead = 0;  // of these, asked for before the operation that read them
  int64_t bytes = 0;  // of these units, the parts of all ranks together
  int64_t peak_live_elements = 0;
};

// The parameters of a unit are views of its `flat`, whose memory comes and goes; its shard stays. A
// dispatch mode of this thread sees the inputs of every operation, in backward passes too, knows
// units by their storage, and has them gathered and held while the operation runs. A model needs no
// change for it. What looks at memory without an operation (data_ptr(), torch::save), or in
// another thread, must do so while the units are held by Unshard; else it throws c10::Error, naming
// the unit, for which IsNotGathered (trainer/comm/explain.h) holds. An operation that writes to a
// parameter throws too: the value would be lost. A view of a parameter (t(), narrow(), detach())
// gathers nothing.
//
// In a pass (Begin to End) a unit that was gathered stays as long as the limits let it:
// - At most max_live_parameters are live, but for what one operation needs.
// - Each pass is expected to read what the last one of its kind (training or inference) read, in
//   the same order. Then a unit goes as soon as an operation has run, if more than
//   max_reuse_distance elements are read before its next use, and more than prefetching would ask
//   for again. What comes next is gathered ahead, at most prefetch_bucket_size elements. If there
//   is no room, what is used last goes first.
// - In a pass of which nothing is expected, a first one or one that has left the order, nothing is
//   gathered ahead, at most max_reuse_distance elements are live as well, and what was used longest
//   ago goes first, when another unit needs room: operations in a row that read one unit gather it
//   once, whatever the limits.
// All of this follows from the order of operations alone, so it is the same on all ranks.
//
// Outside of a pass an operation that reads a unit throws TrainError kBadInput, naming it and
// GatheredParameters.
//
// Autocast's copies of weights are whole parameters, which its cache and the backward pass would
// keep. So in a pass the cache is off, and instead of a copy autocast gets a unit in its dtype,
// which is gathered from cast shards, released and gathered again as any other: the same values.
//
// On a device nothing waits on the host: a unit's memory comes from the stream that first reads it
// (or asks ahead for it), and the operation is ordered after the exchange. An operation in another
// stream waits for that one, and the memory is used again only after both.
//
// A unit that stays has memory always. Its other parts may be asked for (Refresh) long before they
// are read: an operation that reads it waits for them, as late as that, and the mode is on only
// until all have come.
//
// One thread at a time: on a device backward passes run in autograd's own thread there, which has
// this thread's dispatch modes. Every rank must run the same operations.
class ParameterGatherer {
 public:
  struct Unit {
    std::string name;  // module path, for messages
    at::Tensor flat;   // [world_size * n], model dtype; all of its storage (MakeFlat)
    // [n], this rank's part; read whenever the unit is gathered, from pinned memory without
    // waiting.
    at::Tensor shard;
    bool stays = false;  // `flat` has memory, and keeps it; `shard` is this rank's part of it
  };

  // [elements], to make views of, though there is no memory behind it yet.
  static at::Tensor MakeFlat(int64_t elements, const at::TensorOptions& options);

  // Whose the memory of a parameter is.
  enum class Owner {
    kOther,         // of no gatherer
    kGatherer,      // of one
    kGoneGatherer,  // of one that was destroyed: the values are lost
  };
  static Owner OwnerOf(const at::Tensor& tensor);

  // Takes the memory of every `flat` that has some and does not stay. `exchange` must outlive this;
  // unit i travels on channel first_channel + i.
  ParameterGatherer(const ShardExchange& exchange, int first_channel, std::vector<Unit> units,
                    const GatherLimits& limits);
  // In the thread that made it. What still refers to the units' storage finds no memory there:
  // whatever reads it throws, naming the unit.
  ~ParameterGatherer();
  ParameterGatherer(const ParameterGatherer&) = delete;
  ParameterGatherer& operator=(const ParameterGatherer&) = delete;

  // A forward pass (and the backward pass after it, where `trains`) begins; it ends with End, after
  // which nothing is live but what Unshard holds. Begin while one is open ends that first; an
  // exception in the middle of one, if it comes on all ranks, asks for no more. Throws TrainError
  // kBadInput in another thread than the one that made this.
  void Begin(bool trains);
  void End();
  // Throws as Begin does.
  void CheckThread() const;

  // Collective: makes these units whole and writable until as many calls of Reshard, the last of
  // which frees them. Throws as Begin does. Where `keep`, a Reshard takes this rank's part of what
  // was written into its shard.
  void Unshard(const std::vector<size_t>& units);
  void Reshard(const std::vector<size_t>& units, bool keep);

  // Collective: asks for the other ranks' parts of these units, which stay, in this order. Until
  // then and until Settle they must not be written to.
  void Refresh(const std::vector<size_t>& units);
  // Waits for all that Refresh has asked for and nothing has read yet. Begin and Unshard need it
  // not.
  void Settle();
  int64_t awaited_units() const;  // those

  bool live(size_t unit) const;   // whether `flat` has memory
  int64_t live_elements() const;  // those on their way too
  const GatherCounts& counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
