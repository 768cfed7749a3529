#include "trainer/checkpoint/memory_copies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/count.h"
#include "trainer/base/crc32.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/memory_checkpoint/copy_layout.h"

namespace dslaunch {
namespace {

// Maximum size in bytes of a copy whose checksum takes less time than starting a thread.
constexpr uint64_t kNoThreadBytes = uint64_t{1} << 20;

// Keys in the client_state of a copy's manifest. In checkpoints on a disk, client_state belongs to
// programs instead.
constexpr char kTagKey[] = "tag";
constexpr char kTensorsKey[] = "tensors";

// Returns the tensors in the order in which a copy stores them.
std::vector<const TensorPart*> PartsOf(const StateCopy& state) {
  std::vector<const TensorPart*> parts;
  for (const TensorPart& part : state.settled) parts.push_back(&part);
  for (const TensorPart& part : state.others) parts.push_back(&part);
  return parts;
}

std::vector<uint64_t> SizesOf(const std::vector<const TensorPart*>& parts) {
  std::vector<uint64_t> sizes;
  for (const TensorPart* part : parts) sizes.push_back(part->tensor.nbytes());
  return sizes;
}

// Returns a text that is equal for lists of tensors with the same names, dtypes, shapes and parts.
std::string Described(const std::vector<const TensorPart*>& parts) {
  uint32_t sum = 0;
  const auto add = [&sum](const void* data, size_t bytes) { sum = Crc32(data, bytes, sum); };
  for (const TensorPart* part : parts) {
    add(part->name.data(), part->name.size());
    add(part->shape.data(), part->shape.size() * sizeof(int64_t));
    const Shard& shard = part->shard;
    const int64_t numbers[] = {static_cast<int64_t>(part->tensor.scalar_type()),
                               part->tensor.numel(),
                               shard.offset,
                               shard.row,
                               shard.pitch,
                               shard.start,
                               shard.stop};
    add(numbers, sizeof numbers);
  }
  return std::to_string(parts.size()) + " tensors, checksum " + std::to_string(sum);
}

// Returns `bytes` as a tensor with the shape and dtype of `like`.
at::Tensor TensorAt(const std::byte* bytes, const at::Tensor& like) {
  return at::from_blob(const_cast<std::byte*>(bytes), like.sizes(), at::dtype(like.scalar_type()));
}

void WritePieces(const std::vector<CopiesBeside::Piece>& pieces, std::span<std::byte> copy) {
  for (const auto& [bytes, begin] : pieces) {
    std::memcpy(copy.data() + begin, bytes.const_data_ptr(), bytes.nbytes());
  }
}

}  // namespace

MemoryCopies::MemoryCopies(const Recipe& recipe, const WorkerEnv& env)
    : recipe_(recipe), reports_(env.status_fd >= 0), memory_(recipe.identity) {}

MemoryCopies::~MemoryCopies() {
  if (under_way_.valid()) under_way_.wait();
}

const Checkpoint* MemoryCopies::Find(const ProcessGroup& group, int64_t after_step) {
  found_.reset();
  const std::optional<MemoryCheckpoint::Copy> copy = memory_.Load(group, after_step);
  if (!copy) return nullptr;
  Checkpoint checkpoint;
  const std::string failure = FailureOf([&] {
    const std::optional<std::string_view> text = ReadCopyText(copy->bytes);
    if (!text) RefuseInput("the copy in memory is shorter than its manifest");
    found_text_bytes_ = text->size();
    checkpoint.manifest = ParseManifest(std::string(*text), "the copy in memory");
    checkpoint.tag = checkpoint.manifest.client_state[kTagKey];
  });
  ThrowFirstFailure(GatherTexts(group, failure));
  found_ = std::move(checkpoint);
  found_bytes_ = copy->bytes;
  return &*found_;
}

std::string MemoryCopies::reason() const {
  const int64_t step = found_->manifest.position.step;
  const std::string text = "resuming from memory after step " + std::to_string(step);
  if (reports_) return text;
  const int64_t lost = std::max<int64_t>(reached_step().value_or(step) - step, 0);
  return text + "; " + Count(static_cast<size_t>(lost), "step") + (lost == 1 ? " is" : " are") +
         " repeated";
}

void MemoryCopies::Restore(EngineCore& engine) {
  const StateCopy state = CaptureCopy(engine, recipe_.lora.has_value());
  const std::vector<const TensorPart*> parts = PartsOf(state);
  const CopyLayout layout = LayOutCopy(found_text_bytes_, SizesOf(parts));
  const std::string failure = FailureOf([&] {
    if (found_->manifest.client_state[kTensorsKey] == Described(parts) &&
        layout.bytes == found_bytes_.size()) {
      return;
    }
    throw TrainError(
        ExitCode::kInternal,
        "internal error: the copy in memory has other tensors than this rank, " + Described(parts));
  });
  ThrowFirstFailure(GatherTexts(engine.group(), failure));
  auto offset = layout.offsets.begin();
  RestoreCopy(
      found_->manifest, recipe_.lora.has_value(),
      [&](const TensorPart& part) {
        part.tensor.copy_(TensorAt(found_bytes_.data() + *offset++, part.tensor));
      },
      engine);
}

uint64_t MemoryCopies::BytesOf(const EngineCore& engine) const {
  const StateCopy state = CaptureCopy(engine, recipe_.lora.has_value());
  return LayOutCopy(0, SizesOf(PartsOf(state))).bytes;
}

void MemoryCopies::Begin(const EngineCore& engine, const Describe& describe) {
  Wait();
  const at::NoGradGuard no_grad;
  StateCopy state = CaptureCopy(engine, recipe_.lora.has_value());
  const std::vector<const TensorPart*> parts = PartsOf(state);
  std::string tag;
  describe(state.manifest, tag);
  state.manifest.client_state = {{kTagKey, tag}, {kTensorsKey, Described(parts)}};
  const int64_t step = state.manifest.position.step;
  std::string text = FormatManifest(state.manifest);
  const CopyLayout layout = LayOutCopy(text.size(), SizesOf(parts));
  if (engine.group().device().is_cpu()) {
    const std::span<std::byte> bytes = memory_.Begin(layout.bytes);
    if (bytes.empty()) return;
    WriteCopyText(text, bytes);
    for (size_t i = 0; i < parts.size(); ++i) {
      TensorAt(bytes.data() + layout.offsets[i], parts[i]->tensor).copy_(parts[i]->tensor);
    }
    if (layout.bytes <= kNoThreadBytes) {
      memory_.Commit(step);
    } else {
      under_way_ = std::async(std::launch::async, [this, step] { memory_.Commit(step); });
    }
    return;
  }
  // Beginning a slot destroys the older copy, so the slot is begun only after the device has made
  // the new copy. Every device has completed this step at that time, although hosts may be ahead of
  // their devices, so every rank still has the previous copy.
  std::vector<CopiesBeside::Request> requests;
  std::vector<CopiesBeside::Piece> on_host;
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& tensor = parts[i]->tensor;
    if (tensor.is_cpu()) {
      on_host.push_back({tensor.detach().clone(), layout.offsets[i]});
    } else {
      requests.push_back({tensor, layout.offsets[i], /*waits=*/i < state.settled.size()});
    }
  }
  under_way_ = std::async(std::launch::async,
                          [this, step, text = std::move(text), size = layout.bytes,
                           on_host = std::move(on_host), copy = beside_.Start(requests)] {
                            if (copy.is_made) copy.is_made->synchronize();
                            const std::span<std::byte> bytes = memory_.Begin(size);
                            if (bytes.empty()) return;
                            WriteCopyText(text, bytes);
                            WritePieces(on_host, bytes);
                            WritePieces(copy.pieces, bytes);
                            memory_.Commit(step);
                          });
}

void MemoryCopies::NoteStep(int64_t step) {
  const bool is_busy = under_way_.valid() &&
                       under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  if (!is_busy) memory_.NoteStep(step);
}

void MemoryCopies::Wait() {
  if (under_way_.valid()) under_way_.get();
}

}  // namespace dslaunch
