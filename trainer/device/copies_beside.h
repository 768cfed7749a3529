// Copies tensors of a device into memory of the host, in parallel with later work on the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace dslaunch {

// Copies tensors to the host in parallel with later work. Keeps the pinned memory of the largest
// copy for later copies. Not thread-safe, except where stated.
class CopiesBeside {
 public:
  struct Request {
    at::Tensor tensor;  // tensor to copy, contiguous and on the device
    // Offset of the tensor in the copy, in bytes; a multiple of the element size.
    uint64_t begin = 0;
    bool waits = false;  // true if the tensor's memory does not change before Hold()
  };
  // A piece of a copy: consecutive bytes in pinned memory.
  struct Piece {
    at::Tensor bytes;
    uint64_t begin = 0;
  };
  struct Copy {
    std::vector<Piece> pieces;  // pieces in the order of the requests
    // Event after the copies, for which any thread may wait before it reads the pieces.
    std::shared_ptr<c10::Event> is_made;
  };

  // Enqueues the copies on the device: requests with `waits` on a separate stream, and the other
  // requests on the current stream. The next call reuses the memory of these copies. Precondition:
  // the caller has waited for the event of the previous copy.
  Copy Start(const std::vector<Request>& requests);
  // Makes the current stream wait until the copies of the last Start are made.
  void Hold();

 private:
  // Enqueues a copy on the current stream.
  void Add(const Request& request, std::vector<Piece>& pieces);

  std::vector<at::Tensor> blocks_;
  size_t block_ = 0;  // index of the block that is being filled
  int64_t used_ = 0;  // number of bytes used in the block that is being filled
  std::optional<c10::Stream> stream_;
  std::shared_ptr<c10::Event> is_made_;
};

}  // namespace dslaunch
