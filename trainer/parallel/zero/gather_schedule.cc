#include "trainer/parallel/zero/gather_schedule.h"

#include <algorithm>
#include <limits>

namespace dslaunch {

using Kind = GatherAction::Kind;

GatherSchedule::GatherSchedule(const GatherLimits& limits)
    : limits_(limits),
      reuse_distance_(limits.overlap
                          ? std::max(limits.max_reuse_distance, limits.prefetch_bucket_size)
                          : limits.max_reuse_distance),
      orders_{AccessTrace({}), AccessTrace({})} {}

void GatherSchedule::AddUnit(int64_t elements, bool stays) {
  for (AccessTrace& order : orders_) order.AddUnit(elements);
  units_.push_back({.elements = elements, .live = stays, .held = stays ? 1 : 0});
}

void GatherSchedule::Begin(bool trains) {
  in_pass_ = true;
  order_ = &orders_[trains ? 1 : 0];
  order_->Begin();
  scanned_ = 0;
}

void GatherSchedule::End() {
  if (!in_pass_) return;
  in_pass_ = false;
  order_->End();
}

void GatherSchedule::Read(size_t unit) {
  if (in_pass_) order_->Use(unit);
  units_[unit].last_use = ++clock_;
}

std::optional<GatherAction> GatherSchedule::NextFor(size_t unit) const {
  if (units_[unit].live) return std::nullopt;
  if (!HasRoom(units_[unit].elements)) {
    if (const auto released = UnitToRelease(/*place=*/-1))
      return GatherAction{Kind::kRelease, *released};
  }
  return GatherAction{Kind::kGather, unit};
}

std::optional<GatherAction> GatherSchedule::NextAhead() {
  if (!in_pass_ || !limits_.overlap || !order_->followed()) return std::nullopt;
  const std::vector<size_t>& expected = order_->expected();
  const auto end = static_cast<int64_t>(expected.size());
  scanned_ = std::max(scanned_, order_->place());
  while (scanned_ < end && units_[expected[static_cast<size_t>(scanned_)]].live) ++scanned_;
  if (scanned_ >= end) return std::nullopt;
  const size_t unit = expected[static_cast<size_t>(scanned_)];
  const int64_t elements = units_[unit].elements;
  if (ahead_elements_ + elements > limits_.prefetch_bucket_size) return std::nullopt;
  if (HasRoom(elements)) return GatherAction{Kind::kGatherAhead, unit};
  const auto released = UnitToRelease(scanned_);
  if (!released) return std::nullopt;
  return GatherAction{Kind::kRelease, *released};
}

void GatherSchedule::Pin(size_t unit) {
  ClearAhead(units_[unit]);
  ++units_[unit].pinned;
}

bool GatherSchedule::Unpin(size_t unit) {
  --units_[unit].pinned;
  if (!in_pass_ || units_[unit].pinned > 0 || units_[unit].held > 0) return false;
  return order_->followed() && order_->ElementsUntilNextUse(unit) > reuse_distance_;
}

void GatherSchedule::Hold(size_t unit) { ++units_.at(unit).held; }

bool GatherSchedule::Unhold(size_t unit) { return --units_[unit].held == 0; }

void GatherSchedule::Gathered(size_t unit, bool ahead) {
  units_[unit].live = true;
  live_elements_ += units_[unit].elements;
  if (!ahead) return;
  units_[unit].ahead = true;
  units_[unit].last_use = ++clock_;
  ahead_elements_ += units_[unit].elements;
}

void GatherSchedule::Released(size_t unit) {
  units_[unit].live = false;
  live_elements_ -= units_[unit].elements;
  ClearAhead(units_[unit]);
  // A live unit is not gathered ahead, so its next use may have been skipped. The scan restarts
  // there.
  if (in_pass_ && order_->followed()) scanned_ = std::min(scanned_, order_->NextUse(unit));
}

void GatherSchedule::ClearAhead(Unit& unit) {
  if (!unit.ahead) return;
  unit.ahead = false;
  ahead_elements_ -= unit.elements;
}

int64_t GatherSchedule::Limit() const {
  if (!in_pass_) return std::numeric_limits<int64_t>::max();
  if (order_->followed()) return limits_.max_live_parameters;
  return std::min(limits_.max_live_parameters, limits_.max_reuse_distance);
}

// Returns the unit whose next expected use is farthest, or the least recently used unit if no use
// is expected. Returns nullopt if no releasable unit has its next use after `place`.
std::optional<size_t> GatherSchedule::UnitToRelease(int64_t place) const {
  std::optional<size_t> last;
  int64_t last_place = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (!unit.live || unit.held > 0 || unit.pinned > 0) continue;
    const int64_t next = order_->followed() ? order_->NextUse(i) : AccessTrace::kNever;
    if (!last || next > last_place ||
        (next == last_place && unit.last_use < units_[*last].last_use)) {
      last = i;
      last_place = next;
    }
  }
  if (last_place <= place) return std::nullopt;
  return last;
}

}  // namespace dslaunch
