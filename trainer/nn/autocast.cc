#include "dslaunch/autocast.h"

#include <ATen/autocast_mode.h>

namespace dslaunch {

AutocastScope::AutocastScope(std::optional<at::ScalarType> dtype) : active_(dtype.has_value()) {
  if (!active_) return;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    before_[i] = {at::autocast::is_autocast_enabled(kDevices[i]),
                  at::autocast::get_autocast_dtype(kDevices[i])};
    at::autocast::set_autocast_enabled(kDevices[i], true);
    at::autocast::set_autocast_dtype(kDevices[i], *dtype);
  }
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], before_[i].enabled);
    at::autocast::set_autocast_dtype(kDevices[i], before_[i].dtype);
  }
}

}  // namespace dslaunch
