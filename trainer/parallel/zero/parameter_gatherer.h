// ZeRO stage 3: gathers whole parameters for the operations that read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "trainer/parallel/shard_exchange.h"
#include "trainer/parallel/zero/gather_mode.h"
#include "trainer/parallel/zero/gather_schedule.h"
#include "trainer/parallel/zero/gathered_unit.h"

namespace dslaunch {

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
// In a pass (Begin to End) GatherSchedule decides which units are gathered ahead, and how long a
// gathered unit stays. Outside of a pass an operation that reads a unit throws TrainError kBadInput
// that names the unit and GatheredParameters.
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
class ParameterGatherer final : private UnitGatherer {
 public:
  using Unit = GatheredUnit::Description;  // `flat` is from MakeFlat, unless it stays

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

  bool live(size_t unit) const;  // whether `flat` has memory
  // Includes units that are being gathered.
  int64_t live_elements() const { return schedule_.live_elements(); }
  const GatherCounts& counts() const { return counts_; }

 private:
  void Use(GatheredUnit& unit, const c10::OperatorHandle& op, bool writes) override;
  void Done(GatheredUnit& unit) noexcept override;
  GatheredUnit* CastOf(GatheredUnit& unit, at::ScalarType dtype) override;

  void AddUnit(int channel, Unit description);
  void Check(const GatheredUnit& unit, const c10::OperatorHandle& op, bool writes) const;
  void Follow(const GatherAction& action);
  void Gather(GatheredUnit& unit, bool ahead);
  void GatherAhead();
  void Free(GatheredUnit& unit);
  void AwaitRefreshed();
  void RestoreAutocastCache();

  const ShardExchange& exchange_;
  const std::thread::id thread_ = std::this_thread::get_id();
  GatherSchedule schedule_;
  std::deque<GatheredUnit> units_;    // never moved: storages point to them
  std::vector<GatheredUnit*> casts_;  // each unit's in autocast's dtype, once it was requested
  std::optional<c10::Stream> upload_stream_;
  GatherCounts counts_;
  bool releases_ = false;    // whether some unit does not stay
  bool refreshing_ = false;  // since Refresh, in this thread:
  std::thread::id refresh_thread_;
  bool autocast_cached_ = false;  // whether autocast's cache is on outside of passes
};

}  // namespace dslaunch
