// What a program itself exchanges while a pass of an engine runs.
#pragma once

#include <functional>
#include <memory>

namespace dslaunch {

class ProcessGroup;

class ExchangeWatch {
 public:
  // Is called before a method of `group` exchanges tensors with all of its ranks (`collective`) or
  // with one. What it throws that method throws.
  using Listener = std::function<void(const ProcessGroup& group, bool collective)>;

  // Until it is destroyed `listener` hears of all exchanges by this thread, but for its own.
  explicit ExchangeWatch(Listener listener);

  // By the methods of ProcessGroup.
  static void Tell(const ProcessGroup& group, bool collective);

 private:
  std::shared_ptr<const Listener> listener_;  // its only owner
};

}  // namespace dslaunch
