// Implements a unit of parameters that is gathered from the shards of all ranks (ZeRO stage 3): the
// memory of the whole parameters, and the exchange that fills the memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string>

#include "trainer/parallel/shard_exchange.h"

namespace dslaunch {

class UnitGatherer;

// A unit whose parameters are views of the tensor `flat`. The storage of `flat` has allocated
// memory only while the unit is live. The function Of recognizes the unit by the deleter of the
// storage. Reading or writing a value of a unit that is not live throws in every thread, but views
// can be made.
//
// On a device the memory belongs to the stream in which it was allocated, and exchanges are ordered
// in that stream. The host does not wait for exchanges.
class GatheredUnit {
 public:
  struct Description {
    std::string name;  // module path, used in messages
    at::Tensor flat;   // whole parameters [world_size * n] in the model's dtype, all of the storage
    // This rank's part [n], which is cast if its dtype differs. Read whenever the unit is gathered.
    // If the memory is pinned, the host does not wait for the copy.
    at::Tensor shard;
    // True if `flat` always has memory; `shard` is then this rank's part of `flat`.
    bool stays = false;
  };

  // Frees the memory of `flat` unless the unit stays. `exchange` and `owner` must outlive this
  // object. `index` is the unit's number at its owner.
  GatheredUnit(UnitGatherer& owner, size_t index, const ShardExchange& exchange, int channel,
               Description description);
  // Waits for the exchange. If the unit stays, its memory is returned to `flat`. Otherwise the
  // values are lost, and reading tensors that still refer to the storage throws an error that names
  // the unit.
  ~GatheredUnit();
  GatheredUnit(const GatheredUnit&) = delete;
  GatheredUnit& operator=(const GatheredUnit&) = delete;

  // Returns the unit that has this storage, or null.
  static GatheredUnit* Of(c10::StorageImpl& storage) {
    // The storage of a deferred tensor has no allocated memory and would fail the checks, so they
    // are skipped.
    const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
    if (data.get_deleter() != &KeepMemory) return nullptr;
    return static_cast<GatheredUnit*>(data.get_context());
  }
  // Returns whether the storage belonged to a unit that was destroyed and lost its values.
  static bool IsLost(c10::StorageImpl& storage) {
    return storage._mutable_data_ptr_no_checks().get_deleter() == &LostMemory;
  }

  // Allocates the memory of `flat`.
  void Allocate();
  // Begins the exchange that fills the memory. `upload_stream` copies a shard from the host to the
  // device. It is created when first needed, and shared by all units of a gatherer.
  void Request(std::optional<c10::Stream>& upload_stream);
  bool is_requested() const { return arriving_.pending(); }
  // Waits for the exchange. On a device the unit's stream waits, not the host. Throws the
  // exceptions of PendingExchange::Wait.
  void Await();
  // Waits like Await, then frees the memory.
  void Free();
  // Orders the current stream, if it is not the unit's stream, after the pending work of the unit's
  // stream, and before the next use of the memory.
  void OrderForReader() const;

  // Copies this rank's part of `flat` into the shard.
  void StoreShard() { shard_.copy_(OwnPart()); }
  // Sets whether requests for the memory throw. Requests to a unit that is not live throw, except
  // while operations that compare storages by their memory make views of the unit.
  void RefuseAccess(bool refuse);

  UnitGatherer& owner() const { return owner_; }
  size_t index() const { return index_; }
  int channel() const { return channel_; }
  const std::string& name() const { return name_; }
  const at::Tensor& flat() const { return flat_; }
  const at::Tensor& shard() const { return shard_; }
  bool stays() const { return stays_; }
  bool live() const { return live_; }
  // Returns the error message for reading the unit while it is not live. IsNotGathered
  // (trainer/comm/explain.h) returns true for the message.
  std::string NotGatheredText() const;

 private:
  // Deleter that marks the storage of a unit. It frees nothing, because the unit owns the memory.
  static void KeepMemory(void*);
  // Deleter that marks the storage of a unit that was destroyed and lost its values.
  static void LostMemory(void*);

  c10::StorageImpl& storage() const;
  at::Tensor OwnPart() const;  // returns this rank's part of `flat`
  void SetMemory(c10::DataPtr memory);
  c10::Stream OrderedUploadStream(std::optional<c10::Stream>& upload_stream) const;
  void ReturnMemory();
  void LoseMemory();

  UnitGatherer& owner_;
  const size_t index_;
  const ShardExchange& exchange_;
  const int channel_;
  const std::string name_;
  // Has a separate version counter, because autograd must not see gathering.
  const at::Tensor flat_;
  at::Tensor shard_;
  const bool stays_;
  c10::DataPtr memory_;
  bool live_ = false;                  // true if the unit has memory
  std::optional<c10::Stream> stream_;  // stream for allocation and exchanges; nullopt on a CPU
  PendingExchange arriving_;           // exchange that fills the memory
  // End of the copy from the host, which runs in another stream.
  std::optional<c10::Event> uploaded_;
};

}  // namespace dslaunch
