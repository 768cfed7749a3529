// Copies of a device's tensors into memory of the host, made beside the work that follows.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace dslaunch {

// Used by one thread, except where it is stated. Keeps the pinned memory of the largest copy.
class CopiesBeside {
 public:
  struct Request {
    at::Tensor tensor;   // contiguous, on the device
    uint64_t begin = 0;  // where it begins in the copy, in bytes; a multiple of its elements' size
    bool waits = false;  // its memory does not change before Hold(); else it is copied now
  };
  // Consecutive bytes of the copy, in pinned memory.
  struct Piece {
    at::Tensor bytes;
    uint64_t begin = 0;
  };
  struct Copy {
    std::vector<Piece> pieces;            // in the order of the requests
    std::shared_ptr<c10::Event> is_made;  // any thread may wait for it, and then read the pieces
  };

  // Gives the copies to the device: those that do not wait to the current stream, the others to a
  // stream of their own. Their memory is used again by the next call. Precondition: the event of
  // the last copy has been waited for.
  Copy Start(const std::vector<Request>& requests);
  // Makes the current stream wait for the copies of the last Start.
  void Hold();

 private:
  // Copies a tensor in the current stream.
  void Add(const Request& request, std::vector<Piece>& pieces);

  std::vector<at::Tensor> blocks_;
  size_t block_ = 0;  // index of the block in use
  int64_t used_ = 0;  // bytes of it that are used
  std::optional<c10::Stream> stream_;
  std::shared_ptr<c10::Event> is_made_;
};

}  // namespace dslaunch
