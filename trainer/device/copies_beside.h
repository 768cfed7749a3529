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

// Makes such copies. Keeps the pinned memory of the largest copy for later copies. Not thread-safe,
// except where stated.
class CopiesBeside {
 public:
  struct Request {
    at::Tensor tensor;   // contiguous, on the device
    uint64_t begin = 0;  // its first byte in the copy; a multiple of its elements' size
    bool waits = false;  // true if its memory does not change before Hold()
  };
  // Consecutive bytes of a copy, in pinned memory.
  struct Piece {
    at::Tensor bytes;
    uint64_t begin = 0;
  };
  struct Copy {
    std::vector<Piece> pieces;            // in the order of the requests
    std::shared_ptr<c10::Event> is_made;  // any thread may wait for it and then read the pieces
  };

  // Enqueues the copies on the device: those with `waits` on a separate stream, and the others on
  // the current stream. The next call reuses their memory. Precondition: the caller has waited for
  // the event of the previous copy.
  Copy Start(const std::vector<Request>& requests);
  // Makes the current stream wait until the copies of the last Start are made.
  void Hold();

 private:
  // Enqueues a copy on the current stream.
  void Add(const Request& request, std::vector<Piece>& pieces);

  std::vector<at::Tensor> blocks_;
  size_t block_ = 0;  // index of the block in use
  int64_t used_ = 0;  // used bytes of this block
  std::optional<c10::Stream> stream_;
  std::shared_ptr<c10::Event> is_made_;
};

}  // namespace dslaunch
