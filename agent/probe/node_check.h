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

// Runs one check at a time. Used on the loop's thread. The loop must outlive abandoned threads.
class NodeCheck {
 public:
  // `unfit`: why the node is unfit, from FaultsOf(); empty if it is fit.
  using Done = std::function<void(std::string unfit)>;

  explicit NodeCheck(asio::io_context& loop) : loop_(loop) {}

  // Measures the node by `request` on a separate thread. Calls `done` once, never from inside this
  // call. After `limit`, calls `done` with that as the reason and abandons the thread, because a
  // broken driver or disk may block the thread forever.
  void Begin(pb::MeasureRequest request, milliseconds limit, Done done);
  // Forgets the check in progress, whose `done` is then not called.
  void Cancel() { run_.reset(); }

 private:
  struct Run;

  void Finish(const Run& run, std::string unfit);

  asio::io_context& loop_;
  std::shared_ptr<Run> run_;  // null while no check runs
};

}  // namespace dslaunch
