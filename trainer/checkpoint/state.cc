#include "trainer/checkpoint/state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/checkpoint/write_plan.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/device/streams.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

bool IsWhole(const TensorPart& part) {
  return part.shard == Shard::Whole(NumElements(part.shape).value());
}

std::string RankFileName(const std::string& kind, int rank, int files) {
  if (files == 1) return kind + ".safetensors";
  char place[32];
  std::snprintf(place, sizeof place, "-%05d-of-%05d", rank + 1, files);
  return kind + place + ".safetensors";
}

}  // namespace

StoredTensors::StoredTensors(const Checkpoint& checkpoint)
    : checkpoint_(checkpoint), slices_(checkpoint) {
  for (size_t i = 0; i < checkpoint.manifest.tensors.size(); ++i) {
    places_.emplace(checkpoint.manifest.tensors[i].name, i);
  }
}

size_t StoredTensors::Fill(const TensorPart& part) {
  const auto found = places_.find(part.name);
  if (found == places_.end()) Fail("holds no tensor " + part.name);
  const TensorRecord& record = checkpoint_.manifest.tensors[found->second];
  const std::optional<at::ScalarType> saved = ScalarTypeOf(record.dtype);
  if (record.shape != part.shape || !CanFill(saved, part.tensor.scalar_type())) {
    Fail("tensor " + part.name + " is " + DescribedTensor(record.dtype, record.shape) + ", not " +
         DescribedTensor(SafetensorsDtype(part.tensor.scalar_type()), part.shape));
  }
  if (saved == part.tensor.scalar_type() && part.tensor.is_cpu() && part.tensor.is_contiguous()) {
    ReadInto(part.tensor, record, part.shard);
  } else {
    const at::Tensor read = at::empty(part.tensor.sizes(), at::dtype(*saved));
    ReadInto(read, record, part.shard);
    part.tensor.detach().copy_(read);
  }
  return found->second;
}

at::Tensor StoredTensors::ReadWhole(const TensorRecord& tensor) {
  const std::optional<at::ScalarType> type = ScalarTypeOf(tensor.dtype);
  if (!type) {
    throw TrainError(ExitCode::kBadInput, checkpoint_.folder + ": tensor " + tensor.name + " is " +
                                              tensor.dtype +
                                              ", a type that dslaunch does not support");
  }
  const at::Tensor whole = at::empty(tensor.shape, at::dtype(*type));
  ReadInto(whole, tensor, Shard::Whole(whole.numel()));
  return whole;
}

void StoredTensors::Fail(const std::string& problem) const {
  throw TrainError(ExitCode::kBadInput, checkpoint_.folder + ": " + problem +
                                            "; it was saved with another model or optimizer");
}

void StoredTensors::Read(const TensorRecord& tensor, const Shard& shard, void* out) {
  for (const TensorSlice& slice : tensor.slices) {
    bool is_needed = false;  // false if the file has no elements of the shard
    ForEachCommonRun(slice.shard, shard, [&](auto...) { is_needed = true; });
    if (!is_needed) continue;
    if (checkpoint_.reader) {
      checkpoint_.reader->Read(tensor, slice, shard, out);
      continue;
    }
    const SafetensorsFile& file = File(slice.file);
    file.Read(file.tensors().at(tensor.name), slice.shard, shard, out);
  }
}

void StoredTensors::ReadInto(const at::Tensor& out, const TensorRecord& record,
                             const Shard& shard) {
  if (out.numel() != shard.elements()) {
    throw TrainError(ExitCode::kInternal, "internal error: a part of " + record.name +
                                              " has another size than its shard");
  }
  Read(record, shard, out.mutable_data_ptr());
}

const SafetensorsFile& StoredTensors::File(const std::string& name) {
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second;
  SafetensorsFile file(checkpoint_.folder + "/" + name);
  // Checked again, because this rank may see another file than the rank that verified it.
  slices_.Check(name, file);
  return files_.emplace(name, std::move(file)).first->second;
}

StateFile OwnFile(const std::string& kind, const std::vector<TensorPart>& state, int rank,
                  int world_size, int64_t min_share_bytes) {
  const auto shared_out = [](const TensorPart& part) {
    return part.is_canonical && part.replicated && !part.rank0_authoritative;
  };
  std::vector<TensorExtent> extents;
  for (const TensorPart& part : state) {
    if (shared_out(part)) extents.push_back({part.tensor.numel(), part.tensor.element_size()});
  }
  // The number of writers must be equal on all ranks, so it depends only on tensors that all ranks
  // hold.
  const int writers = CountWriters(extents, world_size, min_share_bytes);
  const std::vector<std::optional<ElementRange>> shares =
      ShareOut(extents, rank, writers, min_share_bytes);
  auto share = shares.begin();
  int files = writers;
  StateFile own;
  for (const TensorPart& part : state) {
    if (!part.is_canonical) continue;
    if (!shared_out(part)) {
      if (!part.replicated) files = world_size;
      if (!part.rank0_authoritative || rank == 0) own.parts.push_back(part);
      continue;
    }
    const std::optional<ElementRange> range = *share++;
    if (!range && part.tensor.numel() > 0) continue;
    own.parts.push_back(part);
    if (!range || range->end - range->start == part.tensor.numel()) continue;
    own.parts.back().tensor =
        part.tensor.detach().contiguous().view({-1}).slice(0, range->start, range->end);
    own.parts.back().shard = Slice(part.shard, range->start, range->end);
  }
  own.name = RankFileName(kind, rank, files);
  return own;
}

std::vector<TensorPart> Snapshot(std::vector<TensorPart> parts) {
  for (TensorPart& part : parts) {
    if (part.tensor.is_cpu())
      part.tensor = part.tensor.detach().clone(at::MemoryFormat::Contiguous);
  }
  return OnHost(std::move(parts));
}

std::vector<TensorPart> OnHost(std::vector<TensorPart> parts) {
  std::optional<c10::Device> device;
  for (TensorPart& part : parts) {
    if (part.tensor.is_cpu()) continue;
    device = part.tensor.device();
    // All copies should run at the same time, so no copy blocks. The allocator keeps the pinned
    // memory for the next checkpoint.
    part.tensor = CopyToPinned(part.tensor.detach());
  }
  if (device) AwaitStream(*device);
  return parts;
}

void WriteFile(const std::string& folder, const StateFile& file, RankRecord& record) {
  std::vector<at::Tensor> held;  // owners of the memory to which `tensors` refers
  std::vector<TensorBytes> tensors;
  for (const TensorPart& part : OnHost(file.parts)) {
    const at::Tensor tensor = part.tensor.detach().contiguous();
    const char* dtype = SafetensorsDtype(tensor.scalar_type());
    record.tensors.push_back({part.name, dtype, part.shape, {}});
    const int64_t elements = tensor.numel();
    if (elements == 0) continue;
    record.tensors.back().slices = {{part.shard, file.name}};
    tensors.push_back({part.name, dtype, IsWhole(part) ? part.shape : std::vector{elements},
                       tensor.const_data_ptr()});
    held.push_back(tensor);
  }
  if (tensors.empty()) return;
  record.files.push_back({file.name, WriteSafetensors(folder + "/" + file.name, tensors)});
}

void LoadState(const Checkpoint& checkpoint, const std::vector<TensorPart>& state,
               const ProcessGroup& group, int replica) {
  const at::NoGradGuard no_grad;
  const std::vector<TensorRecord>& records = checkpoint.manifest.tensors;
  // For each tensor of the checkpoint, the number of its elements that the ranks of this run hold
  // together.
  std::vector<double> wanted(records.size());
  const std::string failure = FailureOf([&] {
    StoredTensors stored(checkpoint);
    for (const TensorPart& part : state) {
      const size_t place = stored.Fill(part);
      if (!part.is_canonical || (part.replicated && replica != 0)) continue;
      wanted[place] += static_cast<double>(std::max<int64_t>(part.tensor.numel(), 1));
    }
  });
  ThrowFirstFailure(GatherTexts(group, failure));
  if (!wanted.empty()) group.AllReduceSum(wanted);
  for (size_t i = 0; i < records.size(); ++i) {
    const int64_t elements = NumElements(records[i].shape).value();
    if (wanted[i] >= static_cast<double>(std::max<int64_t>(elements, 1))) continue;
    throw TrainError(ExitCode::kBadInput,
                     checkpoint.folder + ": holds a tensor that this run does not have: " +
                         records[i].name + "; it was saved with another model or optimizer");
  }
}

}  // namespace dslaunch
