// Tests whether this node can run ranks in another attempt.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// On the loop's thread. The loop must outlive threads that were abandoned.
class NodeCheck {
 public:
  // `unfit`: what is wrong (FaultsOf); empty if nothing is.
  using Done = std::function<void(std::string unfit)>;

  explicit NodeCheck(asio::io_context& loop) : loop_(loop) {}

  // Measures the node by `request` in a thread of its own and calls `done` once, never from inside
  // this call. After `limit` it calls `done` with that and abandons the thread, because a broken
  // driver or disk may block it forever.
  void Begin(pb::MeasureRequest request, milliseconds limit, Done done);
  // Forgets the check that runs.
  void Cancel() { run_.reset(); }

 private:
  struct Run;

  void Finish(const Run& run, std::string unfit);

  asio::io_context& loop_;
  std::shared_ptr<Run> run_;  // null while no check runs
};

}  // namespace dslaunch
