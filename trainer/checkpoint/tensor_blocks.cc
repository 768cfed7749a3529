#include "trainer/checkpoint/tensor_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/shards/shards.h"

namespace dslaunch {

at::Tensor ReadBlock(StoredTensors& stored, const TensorRecord& tensor, at::ScalarType dtype,
                     int64_t start, int64_t stop) {
  const Shard whole = Shard::Whole(NumElements(tensor.shape).value());
  const TensorPart part = {tensor.name, at::empty({stop - start}, dtype), tensor.shape,
                           Slice(whole, start, stop)};
  stored.Fill(part);
  return part.tensor;
}

void ReadBlock(StoredTensors& stored, const TensorRecord& tensor, int64_t start, int64_t stop,
               std::vector<char>& bytes) {
  const Shard whole = Shard::Whole(NumElements(tensor.shape).value());
  bytes.resize(static_cast<size_t>(stop - start) * DtypeBytes(tensor.dtype).value());
  stored.Read(tensor, Slice(whole, start, stop), bytes.data());
}

void ForEachBlock(int64_t elements, const std::function<void(int64_t start, int64_t stop)>& use,
                  int64_t block_elements) {
  for (int64_t start = 0; start < elements; start += block_elements) {
    use(start, std::min(elements, start + block_elements));
  }
}

}  // namespace dslaunch
