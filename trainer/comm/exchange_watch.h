// Observes a program's own exchanges while a pass of an engine runs.
#pragma once

#include <functional>
#include <memory>

namespace dslaunch {

class ProcessGroup;

class ExchangeWatch {
 public:
  // Called before a method of `group` exchanges tensors with all of its ranks (`collective`) or
  // with one. The method throws what the listener throws.
  using Listener = std::function<void(const ProcessGroup& group, bool collective)>;

  // Calls `listener` for all exchanges of this thread, except the listener's own, until this is
  // destroyed.
  explicit ExchangeWatch(Listener listener);

  // Called by the methods of ProcessGroup.
  static void Notify(const ProcessGroup& group, bool collective);

 private:
  std::shared_ptr<const Listener> listener_;  // the only owner of the listener
};

}  // namespace dslaunch
