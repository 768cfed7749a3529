// Observes exchanges that a program makes itself while a pass of an engine runs.
#pragma once

#include <functional>
#include <memory>

namespace dslaunch {

class ProcessGroup;

class ExchangeWatch {
 public:
  // Called before a method of `group` exchanges tensors with all ranks (`collective`) or with one
  // rank. If the listener throws, the method passes the exception on.
  using Listener = std::function<void(const ProcessGroup& group, bool collective)>;

  // Calls `listener` for all exchanges of this thread, except exchanges by listeners, until this
  // object is destroyed.
  explicit ExchangeWatch(Listener listener);

  // Calls the listeners. The methods of ProcessGroup call it before an exchange.
  static void Notify(const ProcessGroup& group, bool collective);

 private:
  std::shared_ptr<const Listener> listener_;  // sole owner of the listener
};

}  // namespace dslaunch
