#include "trainer/parallel/zero/access_trace.h"

#include <algorithm>

namespace dslaunch {

AccessTrace::AccessTrace(std::vector<int64_t> unit_elements)
    : unit_elements_(std::move(unit_elements)), places_(unit_elements_.size()) {}

void AccessTrace::AddUnit(int64_t elements) {
  unit_elements_.push_back(elements);
  places_.emplace_back();
}

void AccessTrace::Begin() {
  seen_.clear();
  followed_ = !expected_.empty();
}

void AccessTrace::Use(size_t unit) {
  followed_ = followed_ && seen_.size() < expected_.size() && expected_[seen_.size()] == unit;
  seen_.push_back(unit);
}

void AccessTrace::End() {
  if (seen_ == expected_) return;
  expected_ = seen_;
  for (std::vector<int64_t>& places : places_) places.clear();
  elements_before_.clear();
  int64_t elements = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    if (i > 0 && expected_[i] != expected_[i - 1]) elements += unit_elements_[expected_[i - 1]];
    elements_before_.push_back(elements);
    places_[expected_[i]].push_back(static_cast<int64_t>(i));
  }
}

int64_t AccessTrace::NextUse(size_t unit) const {
  const std::vector<int64_t>& places = places_[unit];
  const auto next = std::lower_bound(places.begin(), places.end(), place());
  return next == places.end() ? kNever : *next;
}

int64_t AccessTrace::ElementsUntilNextUse(size_t unit) const {
  const int64_t next = NextUse(unit);
  if (next == kNever) return kNever;
  return elements_before_[static_cast<size_t>(next)] -
         elements_before_[static_cast<size_t>(place())];
}

}  // namespace dslaunch
