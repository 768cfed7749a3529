#include "trainer/parallel/zero/gathered_unit.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>

#include <exception>
#include <utility>

#include "trainer/comm/explain.h"
#include "trainer/comm/with_context.h"
#include "trainer/device/streams.h"

namespace dslaunch {
namespace {

// Returns a reference to the flag that makes a storage throw when its memory is requested. LibTorch
// can set the flag but not clear it. (An explicit instantiation may name a private member.)
bool& Throws(c10::StorageImpl& storage);
template <auto member>
struct ThrowsOnAccess {
  friend bool& Throws(c10::StorageImpl& storage) { return storage.*member; }
};
template struct ThrowsOnAccess<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

}  // namespace

GatheredUnit::GatheredUnit(UnitGatherer& owner, size_t index, const ShardExchange& exchange,
                           int channel, Description description)
    : owner_(owner),
      index_(index),
      exchange_(exchange),
      channel_(channel),
      name_(std::move(description.name)),
      flat_(description.flat.variable_data()),
      shard_(std::move(description.shard)),
      stays_(description.stays) {
  TORCH_CHECK(flat_.is_contiguous() && flat_.storage_offset() == 0 &&
                  flat_.numel() == exchange.world_size() * shard_.numel(),
              "the unit ", name_, " is not a flat tensor of one shard for each rank");
  if (stays_) {
    void* const data = storage().mutable_data();
    memory_ = storage().set_data_ptr({data, this, &KeepMemory, flat_.device()});
    live_ = true;
  } else {
    // Reading the storage then throws an error with this text.
    storage().release_data_and_set_meta_custom_data_ptr_error_msg_(NotGatheredText());
    SetMemory({});
  }
}

GatheredUnit::~GatheredUnit() {
  if (stays_) {
    ReturnMemory();
  } else {
    LoseMemory();
  }
}

void GatheredUnit::KeepMemory(void*) {}
void GatheredUnit::LostMemory(void*) {}

// Returns the memory to `flat`. Waits for the exchange first, unless an exception is in flight,
// because the exchange would otherwise write into memory that may be in use again.
void GatheredUnit::ReturnMemory() {
  try {
    if (std::uncaught_exceptions() == 0) Await();
  } catch (const std::exception&) {
    // The ranks have diverged; the next wait for them throws that error, so this one is dropped.
  }
  arriving_ = {};
  storage().set_data_ptr(std::move(memory_));
}

void GatheredUnit::LoseMemory() {
  arriving_ = {};  // the exchange must end before the memory is freed
  try {
    if (uploaded_) uploaded_->synchronize();
  } catch (const std::exception&) {
    // A failed device writes nothing more, and the next call that uses it throws, so the error is
    // dropped.
  }
  storage().set_data_ptr_noswap({nullptr, nullptr, &LostMemory, flat_.device()});
  storage().release_data_and_set_meta_custom_data_ptr_error_msg_(
      "the parameters of " + name_ +
      " were sharded by an engine (ZeRO stage 3) that was destroyed, so their values are lost; "
      "read them before that in a dslaunch::GatheredParameters, or save a checkpoint");
}

void GatheredUnit::Allocate() {
  SetMemory(c10::GetAllocator(flat_.device().type())->allocate(flat_.nbytes()));
}

void GatheredUnit::Request(std::optional<c10::Stream>& upload_stream) {
  const at::NoGradGuard no_grad;
  if (!flat_.is_cpu()) stream_ = CurrentStream(flat_.device());
  const bool uploads = !stays_ && shard_.device() != flat_.device();
  const c10::OptionalStreamGuard beside(uploads ? std::optional(OrderedUploadStream(upload_stream))
                                                : std::nullopt);
  if (!stays_) OwnPart().copy_(shard_, /*non_blocking=*/true);
  arriving_ = WithContext("gathering the parameters of " + name_, [&] {
    return exchange_.AllGather({flat_, channel_, "the parameters of " + name_});
  });
  if (uploads) uploaded_.emplace(flat_.device().type()).record(*upload_stream);
}

// Returns the stream that copies shards from the host in parallel to operations, ordered after the
// earlier uses of the unit's memory.
c10::Stream GatheredUnit::OrderedUploadStream(std::optional<c10::Stream>& upload_stream) const {
  if (!upload_stream) upload_stream = OtherStream(flat_.device());
  OrderAfter(*upload_stream, *stream_);
  return *upload_stream;
}

void GatheredUnit::Await() {
  if (!arriving_.pending() && !uploaded_) return;
  const c10::OptionalStreamGuard allocated_in(stream_);
  WithContext("gathering the parameters of " + name_, [&] { arriving_.Wait(); });
  if (uploaded_) uploaded_->block(*stream_);
  uploaded_.reset();
}

void GatheredUnit::Free() {
  Await();
  SetMemory({});
}

void GatheredUnit::OrderForReader() const {
  if (!stream_) return;
  const c10::Stream reader = CurrentStream(flat_.device());
  if (reader == *stream_) return;
  OrderAfter(reader, *stream_);
  KeepFor(memory_, reader);
}

at::Tensor GatheredUnit::OwnPart() const {
  const int64_t n = shard_.numel();
  return flat_.narrow(0, exchange_.rank() * n, n);
}

void GatheredUnit::RefuseAccess(bool refuse) { Throws(storage()) = refuse; }

std::string GatheredUnit::NotGatheredText() const {
  return "the parameters of " + name_ + kNotGathered;
}

c10::StorageImpl& GatheredUnit::storage() const {
  return *flat_.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

void GatheredUnit::SetMemory(c10::DataPtr memory) {
  live_ = memory.get() != nullptr;
  // Views of a released unit can be made, but reading or writing a value without the mode throws in
  // every thread.
  RefuseAccess(!live_);
  storage().set_data_ptr_noswap({memory.get(), this, &KeepMemory, flat_.device()});
  memory_ = std::move(memory);
}

}  // namespace dslaunch
