#include "trainer/foreign/foreign_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

// A box of a tensor's elements: indices [begin, begin + size) in each dimension.
struct Box {
  std::vector<int64_t> begin, size;
};

// Returns the elements [from, to) of a tensor of `shape`, in row-major order, as boxes. There are
// at most two boxes for each dimension.
std::vector<Box> BoxesOf(const std::vector<int64_t>& shape, int64_t from, int64_t to) {
  // Number of elements in one step along each dimension.
  std::vector<int64_t> inner(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) inner[i - 1] = inner[i] * shape[i];
  std::vector<Box> boxes;
  while (from < to) {
    // Find the outermost dimension in which the range begins at an index boundary and spans at
    // least one whole index.
    size_t dim = 0;
    while (dim + 1 < shape.size() && (from % inner[dim] != 0 || to - from < inner[dim])) ++dim;
    Box box{.begin = {}, .size = std::vector<int64_t>(shape.size(), 1)};
    for (size_t i = 0; i < shape.size(); ++i) box.begin.push_back(from / inner[i] % shape[i]);
    int64_t elements = 1;
    if (!shape.empty()) {
      box.size[dim] = std::min((to - from) / inner[dim], shape[dim] - box.begin[dim]);
      for (size_t i = dim + 1; i < shape.size(); ++i) box.size[i] = shape[i];
      elements = box.size[dim] * inner[dim];
    }
    boxes.push_back(std::move(box));
    from += elements;
  }
  return boxes;
}

// Calls visit(in_box, in_file) for each element of the box, in the order of the file. `in_box` is
// the element's row-major index in the box. `in_file` is the distance in the file, in elements,
// from the tensor's first element.
template <class Visit>
void ForEachInFileOrder(const Box& box, const std::vector<int64_t>& stride, const Visit& visit) {
  const size_t dims = box.size.size();
  std::vector<size_t> order(dims);  // dimensions in descending order of stride
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return stride[a] > stride[b]; });
  std::vector<int64_t> inner(dims, 1), index(dims);
  for (size_t i = dims; i-- > 1;) inner[i - 1] = inner[i] * box.size[i];
  int64_t in_box = 0, in_file = 0;
  for (size_t i = 0; i < dims; ++i) in_file += box.begin[i] * stride[i];
  while (true) {
    visit(in_box, in_file);
    size_t at = dims;
    for (; at > 0; --at) {
      const size_t dim = order[at - 1];
      in_box += inner[dim];
      in_file += stride[dim];
      if (++index[dim] < box.size[dim]) break;
      in_box -= inner[dim] * box.size[dim];
      in_file -= stride[dim] * box.size[dim];
      index[dim] = 0;
    }
    if (at == 0) return;
  }
}

// Returns the number of elements from the first to the last element of a tensor with strides.
// Precondition: the tensor has elements.
int64_t ElementsSpanned(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * stride[i];
  return last + 1;
}

}  // namespace

void ForeignReader::Read(const TensorRecord& tensor, const TensorSlice& stored, const Shard& wanted,
                         void* out) const {
  if (stored.shard.elements() == 0) return;
  const auto found = places_.find(stored.file);
  const auto internal = [&](const std::string& problem) {
    throw TrainError(ExitCode::kInternal, "internal error: " + tensor.name + " " + problem);
  };
  if (found == places_.end()) internal("has a slice without a place");
  const BytesInFile& place = found->second;
  const std::vector<int64_t>& stride = place.stride;
  const bool is_strided = !stride.empty();
  if (is_strided && (stride.size() != tensor.shape.size() ||
                     stored.shard.elements() != NumElements(tensor.shape))) {
    internal("has strides of another shape");
  }
  const uint64_t width = DtypeBytes(tensor.dtype).value();
  const InputFile& file = File(place.path);
  const int64_t elements =
      is_strided ? ElementsSpanned(tensor.shape, stride) : stored.shard.elements();
  const uint64_t bytes = static_cast<uint64_t>(elements) * width;
  if (place.begin > file.bytes() || bytes > file.bytes() - place.begin) {
    RefuseInput(place.path + ": has " + std::to_string(file.bytes()) + " bytes where " +
                SanitizeForTerminal(tensor.name) + " needs " + std::to_string(place.begin + bytes) +
                "; it is cut off or has been changed");
  }

  GatheringReads reads(file, out);
  const auto add = [&](int64_t in_file, int64_t in_out, int64_t length) {
    reads.Add(place.begin + static_cast<uint64_t>(in_file) * width,
              static_cast<uint64_t>(in_out) * width, static_cast<uint64_t>(length) * width);
  };
  ForEachCommonRun(stored.shard, wanted, [&](int64_t from, int64_t to, int64_t length) {
    if (!is_strided) return add(from, to, length);
    for (const Box& box : BoxesOf(tensor.shape, from, from + length)) {
      ForEachInFileOrder(box, stride,
                         [&](int64_t in_box, int64_t in_file) { add(in_file, to + in_box, 1); });
      to += std::accumulate(box.size.begin(), box.size.end(), int64_t{1}, std::multiplies<>());
    }
  });
  reads.Finish();
}

const InputFile& ForeignReader::File(const std::string& path) const {
  const auto found = std::ranges::find(open_, path, &InputFile::path);
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    open_.emplace_front(path);
    if (open_.size() > kMaxOpenFiles) open_.pop_back();
  }
  return open_.front();
}

Checkpoint WithReader(ForeignCheckpoint plan) {
  Checkpoint checkpoint = std::move(plan.checkpoint);
  checkpoint.reader = std::make_shared<ForeignReader>(std::move(plan.places));
  return checkpoint;
}

}  // namespace dslaunch
