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
  int64_t units = 0;  // number of gathers; a unit that is gathered twice counts twice
  int64_t ahead = 0;  // number of gathers that began before an operation read the unit
  int64_t bytes = 0;  // size of all gathered units, including this rank's own parts
  int64_t peak_live_elements = 0;
};

// Gathers units, which are groups of parameters that the ranks share out, while operations read
// them. The parameters of a unit are views of the tensor `flat`, whose memory is allocated and
// freed as needed; the rank's shard of the unit always has memory. A dispatch mode of the thread
// intercepts every operation, in backward passes too, finds units among the inputs by their
// storage, and gathers and holds the units while the operation runs, so models need no change.
//
// Code that reads memory without an operation (data_ptr(), torch::save) or in another thread must
// run between Unshard and Reshard of the unit. Otherwise it throws a c10::Error that names the unit
// and for whose text IsNotGathered (trainer/comm/explain.h) returns true. An operation that writes
// to a parameter throws too, because the written value would be lost. An operation that only
// returns a view of a parameter (t(), narrow(), detach()) gathers nothing.
//
// During a pass (Begin to End) GatherSchedule decides which units are gathered ahead, and when a
// gathered unit is released. Outside of a pass an operation that reads a unit throws a TrainError
// kBadInput that names the unit and GatheredParameters.
//
// Autocast's copies of weights are whole parameters, which autocast's cache and the backward pass
// would keep. So the cache is off during a pass, and instead of a copy autocast gets a unit in its
// dtype, which is gathered from cast shards and released like other units and has the same values.
//
// On a device the host does not wait. A unit's memory is allocated in the stream that gathers the
// unit, and the operation is ordered after the exchange. An operation in another stream waits for
// the first stream, and the memory is reused only after both streams have used it.
//
// A unit that stays always has memory. Refresh may request the other ranks' parts long before they
// are read, because only an operation that reads the unit waits for the parts. The dispatch mode is
// on until all parts have arrived.
//
// Used by one thread at a time. On a device backward passes run in autograd's thread, which has the
// dispatch modes of the calling thread. Every rank must run the same operations.
class ParameterGatherer final : private UnitGatherer {
 public:
  using Unit = GatheredUnit::Description;  // MakeFlat makes `flat`, unless the unit stays

  // Returns a tensor of shape [elements] whose storage has no allocated memory yet. Views of the
  // tensor can be made, but its values must not be read before the unit is gathered.
  static at::Tensor MakeFlat(int64_t elements, const at::TensorOptions& options);

  // Owner of a parameter's memory.
  enum class Owner {
    kOther,         // the memory does not belong to a gatherer
    kGatherer,      // a gatherer that exists
    kGoneGatherer,  // a gatherer that was destroyed, so the values are lost
  };
  static Owner OwnerOf(const at::Tensor& tensor);

  // Frees the memory of `flat` of every unit that does not stay. `exchange` must outlive this
  // object. Unit i uses channel first_channel + i.
  ParameterGatherer(const ShardExchange& exchange, int first_channel, std::vector<Unit> units,
                    const GatherLimits& limits);
  // Must run in the thread of the constructor. Tensors that still refer to the units' storage lose
  // their memory, so reading them throws an error that names the unit.
  ~ParameterGatherer();
  ParameterGatherer(const ParameterGatherer&) = delete;
  ParameterGatherer& operator=(const ParameterGatherer&) = delete;

  // Begins a pass: a forward pass and, if `trains`, the backward pass after it. Ends an open pass
  // first, so an exception in the middle of a pass needs no cleanup if all ranks throw it. Throws
  // TrainError kBadInput unless called in the constructor's thread.
  void Begin(bool trains);
  // Ends the pass. Afterwards only units held by Unshard are live.
  void End();
  // Throws TrainError kBadInput unless called in the constructor's thread.
  void CheckThread() const;

  // Makes these units whole and writable until Reshard is called as often. Collective. Throws
  // TrainError kBadInput unless called in the constructor's thread.
  void Unshard(const std::vector<size_t>& units);
  // Undoes one Unshard of these units, and frees each unit that no other Unshard holds. If `keep`,
  // first copies this rank's part of the written values into the shard; otherwise written values
  // are lost. Throws c10::Error if a unit is not held. Called on every rank.
  void Reshard(const std::vector<size_t>& units, bool keep);

  // Requests the other ranks' parts of these units, which must be units that stay, in this order.
  // The units must not be written to until they are read or Settle returns. Collective.
  void Refresh(const std::vector<size_t>& units);
  // Waits for all units that Refresh has requested and no operation has read yet. Not needed before
  // Begin and Unshard.
  void Settle();
  // Returns the number of units that Refresh has requested and nothing has waited for yet.
  int64_t awaited_units() const;

  bool live(size_t unit) const;  // returns whether the unit's `flat` has memory
  // Returns the number of elements of live units, including units that are being gathered.
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
  std::deque<GatheredUnit> units_;    // at fixed addresses, because storages point to units
  std::vector<GatheredUnit*> casts_;  // each unit in autocast's dtype; null until requested
  std::optional<c10::Stream> upload_stream_;
  GatherCounts counts_;
  bool releases_ = false;           // true if a unit does not stay
  bool refreshing_ = false;         // true between Refresh and the end of the wait for its units
  std::thread::id refresh_thread_;  // thread that called Refresh
  bool autocast_cached_ = false;    // true if autocast's cache is on outside of passes
};

}  // namespace dslaunch
