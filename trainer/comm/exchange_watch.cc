#include "trainer/comm/exchange_watch.h"

#include <c10/util/ScopeExit.h>

#include <utility>
#include <vector>

namespace dslaunch {
namespace {

thread_local std::vector<std::weak_ptr<const ExchangeWatch::Listener>> listeners;

}  // namespace

ExchangeWatch::ExchangeWatch(Listener listener)
    : listener_(std::make_shared<const Listener>(std::move(listener))) {
  std::erase_if(listeners, [](const auto& other) { return other.expired(); });
  listeners.push_back(listener_);
}

void ExchangeWatch::Notify(const ProcessGroup& group, bool collective) {
  if (listeners.empty()) return;
  // Listeners must not be called for their own exchanges, so the list is empty during the calls.
  std::vector<std::weak_ptr<const Listener>> told = std::exchange(listeners, {});
  const auto listen_again = c10::make_scope_exit([&told] { listeners = std::move(told); });
  for (const std::weak_ptr<const Listener>& each : told) {
    if (const std::shared_ptr<const Listener> listener = each.lock())
      (*listener)(group, collective);
  }
}

}  // namespace dslaunch
