#include "trainer/weights/weight_sources.h"

#include <ATen/ATen.h>

#include <optional>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

Shard WholeOf(const WeightSource& source) {
  return Shard::Whole(*NumElements(source.tensor.shape));
}

// Returns the elements of the source in `shard`, as a flat tensor in the file's dtype.
at::Tensor ReadElements(const WeightSource& source, const Shard& shard) {
  const at::Tensor elements = at::empty({shard.elements()}, *ScalarTypeOf(source.tensor.dtype));
  source.file->Read(source.tensor, WholeOf(source), shard, elements.mutable_data_ptr());
  return elements;
}

// Calls use(start, chunk) for consecutive slices of `shard`. `start` is the index in the shard of
// the slice's first element.
template <class Use>
void InChunks(const Shard& shard, const Use& use) {
  constexpr int64_t kChunkElements = 1 << 20;
  for (int64_t start = 0; start < shard.elements(); start += kChunkElements) {
    use(start, Slice(shard, start, start + kChunkElements));
  }
}

}  // namespace

std::map<std::string, at::Tensor> TensorsOf(const Model& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

void CheckFits(const WeightSource& source, const at::Tensor& target) {
  const std::optional<at::ScalarType> type = ScalarTypeOf(source.tensor.dtype);
  if (!CanFill(type, target.scalar_type()) || target.sizes() != source.tensor.shape) {
    RefuseInput(source.place + " is " + DescribedTensor(source.tensor.dtype, source.tensor.shape) +
                " where the model has " +
                DescribedTensor(SafetensorsDtype(target.scalar_type()), target.sizes().vec()));
  }
}

bool AreSame(const WeightSource& a, const WeightSource& b, at::ScalarType dtype) {
  bool same = true;
  InChunks(WholeOf(a), [&](int64_t, const Shard& chunk) {
    same = same && at::equal(ReadElements(a, chunk).to(dtype), ReadElements(b, chunk).to(dtype));
  });
  return same;
}

void Fill(const TensorPart& part, const WeightSource& source) {
  const at::Tensor row = part.tensor.detach().view(-1);
  InChunks(part.shard, [&](int64_t start, const Shard& chunk) {
    row.narrow(0, start, chunk.elements()).copy_(ReadElements(source, chunk));
  });
}

at::Tensor ReadTensor(const WeightSource& source) {
  return ReadElements(source, WholeOf(source)).view(source.tensor.shape);
}

}  // namespace dslaunch
