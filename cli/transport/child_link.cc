#include "cli/transport/child_link.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLeaveToEnd{2000};

}  // namespace

ChildLink::~ChildLink() {
  child_->ShutStream();
  if (!child_->is_left_running()) child_->WaitEnd(Deadline::After(kLeaveToEnd));
}

bool ChildLink::WaitEnd(Deadline deadline) {
  child_->ShutStream();  // its duplicate would keep a closed stream open
  return child_->WaitEnd(deadline).has_value();
}

}  // namespace dslaunch
