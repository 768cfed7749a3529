#include "trainer/device/copies_beside.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "trainer/device/streams.h"

namespace dslaunch {
namespace {

// Size of a block of pinned memory in bytes. LibTorch rounds the size of pinned memory up to a
// power of two, so a single large block could waste half of its memory.
constexpr int64_t kBlockBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 64;

}  // namespace

void CopiesBeside::Add(const Request& request, std::vector<Piece>& pieces) {
  const at::Tensor from = request.tensor.detach().view({-1});
  const auto width = static_cast<int64_t>(from.element_size());
  for (int64_t element = 0; element < from.numel();) {
    if (block_ < blocks_.size() && kBlockBytes - used_ < kAlignment) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      blocks_.push_back(at::empty({kBlockBytes}, at::dtype(at::kByte).pinned_memory(true)));
    }
    const int64_t count = std::min(from.numel() - element, (kBlockBytes - used_) / width);
    const at::Tensor bytes = blocks_[block_].narrow(0, used_, count * width);
    bytes.view(from.scalar_type()).copy_(from.narrow(0, element, count), /*non_blocking=*/true);
    pieces.push_back({bytes, request.begin + static_cast<uint64_t>(element * width)});
    element += count;
    used_ =
        std::min((used_ + count * width + kAlignment - 1) / kAlignment * kAlignment, kBlockBytes);
  }
}

CopiesBeside::Copy CopiesBeside::Start(const std::vector<Request>& requests) {
  const c10::NoGradGuard no_grad;
  Copy copy;
  block_ = 0;
  used_ = 0;
  is_made_.reset();
  if (requests.empty()) return copy;
  const c10::Device device = requests.front().tensor.device();
  for (const Request& request : requests) {
    if (!request.waits) Add(request, copy.pieces);
  }
  if (!stream_) stream_ = OtherStream(device);
  OrderAfter(*stream_, CurrentStream(device));
  {
    const c10::StreamGuard beside(*stream_);
    for (const Request& request : requests) {
      if (request.waits) Add(request, copy.pieces);
    }
  }
  is_made_ = std::make_shared<c10::Event>(device.type());
  is_made_->record(*stream_);
  copy.is_made = is_made_;
  return copy;
}

void CopiesBeside::Hold() {
  if (is_made_) is_made_->block(CurrentStream(stream_->device()));
}

}  // namespace dslaunch
