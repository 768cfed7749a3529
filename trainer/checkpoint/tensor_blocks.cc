#include "trainer/checkpoint/tensor_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/tensor_type.h"
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

void ForEachBlock(int64_t elements, const std::function<void(int64_t start, int64_t stop)>& use) {
  for (int64_t start = 0; start < elements; start += kBlockElements) {
    use(start, std::min(elements, start + kBlockElements));
  }
}

at::ScalarType SupportedType(const Checkpoint& checkpoint, const TensorRecord& tensor) {
  const std::optional<at::ScalarType> type = ScalarTypeOf(tensor.dtype);
  if (type) return *type;
  RefuseInput(checkpoint.folder + ": tensor " + Truncate(tensor.name) + " is " + tensor.dtype +
              ", a type that dslaunch does not support");
}

}  // namespace dslaunch
