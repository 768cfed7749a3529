// A unit of parameters that is gathered from the shards of all ranks (ZeRO stage 3): the memory of
// its whole parameters, and the exchange that fills it.
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

// The parameters are views of `flat`, whose memory exists while the unit is live. Of recognizes a
// unit by that memory. Reading or writing a value of a unit that is not live throws in every
// thread; views of it can be made.
//
// On a device the memory belongs to the stream in which it was allocated, and exchanges are ordered
// there. The host waits for none of them.
class GatheredUnit {
 public:
  struct Description {
    std::string name;  // module path, for messages
    at::Tensor flat;   // [world_size * n], model dtype; all of its storage
    // [n], this rank's part, cast if its dtype differs; read whenever the unit is gathered; pinned
    // memory is read without waiting.
    at::Tensor shard;
    bool stays = false;  // `flat` has memory, and keeps it; `shard` is this rank's part of it
  };

  // Frees the memory of `flat` unless it stays. `exchange` and `owner` must outlive this. `index`:
  // the unit's number at its owner.
  GatheredUnit(UnitGatherer& owner, size_t index, const ShardExchange& exchange, int channel,
               Description description);
  // Waits for the exchange. Memory that stays is returned to `flat`. Otherwise the values are lost,
  // and reading tensors that still refer to the storage throws an error that names the unit.
  ~GatheredUnit();
  GatheredUnit(const GatheredUnit&) = delete;
  GatheredUnit& operator=(const GatheredUnit&) = delete;

  // Returns the unit whose storage this is, or null.
  static GatheredUnit* Of(c10::StorageImpl& storage) {
    // No checks, because a storage of a model that is constructed without memory fails them.
    const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
    if (data.get_deleter() != &KeepMemory) return nullptr;
    return static_cast<GatheredUnit*>(data.get_context());
  }
  // Returns whether this is the storage of a unit that was destroyed without memory.
  static bool IsLost(c10::StorageImpl& storage) {
    return storage._mutable_data_ptr_no_checks().get_deleter() == &LostMemory;
  }

  // Allocates the memory.
  void Allocate();
  // Begins the exchange that fills the memory. `upload_stream` copies a shard from the host to the
  // device; it is made when it is first needed, and all units of a gatherer share it.
  void Request(std::optional<c10::Stream>& upload_stream);
  bool is_requested() const { return arriving_.pending(); }
  // Waits for the exchange; on a device the unit's stream waits, not the host. Throws as
  // PendingExchange::Wait does.
  void Await();
  // Waits as Await does, then frees the memory.
  void Free();
  // Orders an operation in another stream than the unit's after the work that the unit's stream has
  // now, and before the next use of the memory.
  void OrderForReader() const;

  // Copies this rank's part of `flat` into the shard.
  void StoreShard() { shard_.copy_(OwnPart()); }
  // Sets whether requests for the memory throw. Those of a unit that is not live throw, except
  // while views of it are made by operations that compare storages by their memory.
  void RefuseAccess(bool refuse);

  UnitGatherer& owner() const { return owner_; }
  size_t index() const { return index_; }
  int channel() const { return channel_; }
  const std::string& name() const { return name_; }
  const at::Tensor& flat() const { return flat_; }
  const at::Tensor& shard() const { return shard_; }
  bool stays() const { return stays_; }
  bool live() const { return live_; }
  // The message of reading the unit without memory; IsNotGathered is true for it.
  std::string NotGatheredText() const;

 private:
  // Deleters that mark a storage. They free nothing, because the unit owns the memory.
  static void KeepMemory(void*);
  static void LostMemory(void*);

  c10::StorageImpl& storage() const;
  at::Tensor OwnPart() const;  // this rank's part of `flat`
  void SetMemory(c10::DataPtr memory);
  c10::Stream OrderedUploadStream(std::optional<c10::Stream>& upload_stream) const;
  void ReturnMemory();
  void LoseMemory();

  UnitGatherer& owner_;
  const size_t index_;
  const ShardExchange& exchange_;
  const int channel_;
  const std::string name_;
  const at::Tensor flat_;  // own version counter, because autograd must not see gathering
  at::Tensor shard_;
  const bool stays_;
  c10::DataPtr memory_;
  bool live_ = false;                   // has memory
  std::optional<c10::Stream> stream_;   // on a device: allocation and exchanges are ordered in it
  PendingExchange arriving_;            // exchange that fills the memory
  std::optional<c10::Event> uploaded_;  // copy from the host, in a stream beside `stream_`
};

}  // namespace dslaunch
