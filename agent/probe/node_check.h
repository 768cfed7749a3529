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

// Runs one check of this node at a time. Used on the loop's thread. The loop must outlive abandoned
// threads.
class NodeCheck {
 public:
  // Receives the reason why the node is unfit, from FaultsOf(); empty if the node is fit.
  using Done = std::function<void(std::string unfit)>;

  explicit NodeCheck(asio::io_context& loop) : loop_(loop) {}

  // Measures the node as `request` describes, on a separate thread. Calls `done` once, never from
  // inside this call. A broken driver or disk may block the thread forever, so after `limit` the
  // thread is abandoned, and `done` is called with the timeout as the reason.
  void Begin(pb::MeasureRequest request, milliseconds limit, Done done);
  // Abandons the check in progress, whose `done` is then not called.
  void Cancel() { run_.reset(); }

 private:
  struct Run;

  void Finish(const Run& run, std::string unfit);

  asio::io_context& loop_;
  std::shared_ptr<Run> run_;  // check in progress; nullptr if there is none
};

}  // namespace dslaunch
