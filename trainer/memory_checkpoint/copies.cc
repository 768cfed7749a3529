#include "trainer/memory_checkpoint/copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <utility>

#include "trainer/base/crc32.h"

namespace dslaunch {

Copies::Copies(Slots slots, const CopyOwner& owner) : slots_(std::move(slots)), owner_(owner) {
  if (const std::vector<CopyId> stored = Stored(); !stored.empty()) Keep(stored.front());
}

std::optional<SlotHeader> Copies::HeaderOf(size_t slot) const {
  const std::optional<SlotHeader> header = DecodeSlotHeader(slots_[slot]->bytes());
  if (!header || header->rank != owner_.rank || header->world_size != owner_.world_size ||
      header->layout != owner_.layout || header->id.attempt > owner_.attempt) {
    return std::nullopt;
  }
  return header;
}

std::vector<CopyId> Copies::Stored() const {
  std::vector<CopyId> stored;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (const std::optional<SlotHeader> header = HeaderOf(slot)) stored.push_back(header->id);
  }
  std::ranges::sort(stored, std::greater());
  return stored;
}

std::optional<size_t> Copies::SlotOf(const CopyId& id) const {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (const auto header = HeaderOf(slot); header && header->id == id) return slot;
  }
  return std::nullopt;
}

std::optional<std::span<const std::byte>> Copies::Read(const CopyId& id) const {
  const std::optional<size_t> slot = SlotOf(id);
  if (!slot) return std::nullopt;
  const std::optional<SlotHeader> header = HeaderOf(*slot);
  const std::span<const std::byte> copy =
      slots_[*slot]->bytes().subspan(kSlotHeaderBytes, header->bytes);
  if (Crc32(copy.data(), copy.size()) != header->crc32) return std::nullopt;
  return copy;
}

void Copies::Keep(const CopyId& id) {
  if (const std::optional<size_t> slot = SlotOf(id)) next_ = 1 - *slot;
}

std::span<std::byte> Copies::Begin(size_t bytes) {
  CopySlot& slot = *slots_[next_];
  slot.Grow(kSlotHeaderBytes + bytes);
  std::memset(slot.bytes().data(), 0, kSlotHeaderFields);
  // The process may be killed after any instruction, so the compiler must not move writes across
  // this fence.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  begun_bytes_ = bytes;
  return slot.bytes().subspan(kSlotHeaderBytes, bytes);
}

void Copies::Commit(int64_t step) {
  const std::span<std::byte> slot = slots_[next_]->bytes();
  const SlotHeader header = {
      .id = {step, owner_.attempt},
      .rank = owner_.rank,
      .world_size = owner_.world_size,
      .layout = owner_.layout,
      .bytes = begun_bytes_,
      .crc32 = Crc32(slot.data() + kSlotHeaderBytes, begun_bytes_),
  };
  const auto fields = EncodeSlotHeader(header);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(slot.data(), fields.data(), fields.size());
  begun_bytes_ = 0;
  next_ = 1 - next_;
}

void Copies::NoteStep(int64_t step) {
  if (slots_[0]->bytes().empty()) slots_[0]->Grow(kSlotHeaderBytes);
  const std::array<int64_t, 2> noted = {step, ~step};
  std::memcpy(slots_[0]->bytes().data() + kNotedStepOffset, noted.data(), sizeof noted);
}

std::optional<int64_t> Copies::noted_step() const {
  std::array<int64_t, 2> noted;
  const std::span<const std::byte> slot = slots_[0]->bytes();
  if (slot.size() < kSlotHeaderBytes) return std::nullopt;
  std::memcpy(noted.data(), slot.data() + kNotedStepOffset, sizeof noted);
  if (noted[0] < 0 || noted[1] != ~noted[0]) return std::nullopt;
  return noted[0];
}

}  // namespace dslaunch
