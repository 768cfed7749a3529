#include "agent/probe/node_check.h"

#include <asio/post.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/probe/node_faults.h"
#include "agent/probe/node_probe.h"
#include "base/count.h"

namespace dslaunch {
namespace {

std::string Text(const std::vector<NodeFault>& faults) {
  std::string text;
  for (const NodeFault& fault : faults)
    text += (text.empty() ? "" : "; ") + fault.check + ": " + fault.seen;
  return text;
}

}  // namespace

struct NodeCheck::Run {
  explicit Run(asio::io_context& loop, Done call) : timer(loop), done(std::move(call)) {}

  asio::steady_timer timer;
  Done done;
};

void NodeCheck::Begin(pb::MeasureRequest request, milliseconds limit, Done done) {
  run_ = std::make_shared<Run>(loop_, std::move(done));
  const std::weak_ptr<Run> weak = run_;
  const auto finish = [this, weak](std::string unfit) {
    if (const std::shared_ptr<Run> run = weak.lock()) Finish(*run, std::move(unfit));
  };
  run_->timer.expires_after(limit);
  run_->timer.async_wait([finish, limit](const asio::error_code& error) {
    if (!error) finish("its check did not end within " + Seconds(limit.count()));
  });
  try {
    std::thread([&loop = loop_, finish, request = std::move(request)] {
      std::string unfit = Text(FaultsOf(MeasureNode(request), request.gpus()));
      asio::post(loop, [finish, unfit = std::move(unfit)] { finish(unfit); });
    }).detach();
  } catch (const std::system_error& error) {
    asio::post(loop_, [finish, why = error.code().message()] {
      finish("its check could not start: " + why);
    });
  }
}

void NodeCheck::Finish(const Run& run, std::string unfit) {
  if (run_.get() != &run) return;
  const Done done = std::exchange(run_, nullptr)->done;
  done(std::move(unfit));
}

}  // namespace dslaunch
