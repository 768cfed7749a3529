// In which order a pass reads units, and what that says about the next pass. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace dslaunch {

// Each pass is expected to read what the last one read, in the same order. As soon as one does not,
// nothing is expected of the rest of it.
class AccessTrace {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  explicit AccessTrace(std::vector<int64_t> unit_elements);
  void AddUnit(int64_t elements);  // the next one

  void Begin();
  void Use(size_t unit);
  void End();  // what was read since Begin is expected from now on

  // Whether so far this pass has done what was expected of it. If not, the rest has no meaning.
  bool followed() const { return followed_; }
  const std::vector<size_t>& expected() const { return expected_; }
  // Of expected(): the first use that is still to come.
  int64_t place() const { return static_cast<int64_t>(seen_.size()); }
  // Of expected(): the next use of this unit that is still to come, or kNever.
  int64_t NextUse(size_t unit) const;
  // How many elements are read before that; a unit that is read several times in a row counts once.
  // kNever if there is none.
  int64_t ElementsUntilNextUse(size_t unit) const;

 private:
  std::vector<int64_t> unit_elements_;
  std::vector<size_t> expected_, seen_;
  std::vector<std::vector<int64_t>> places_;  // in expected_, of each unit
  std::vector<int64_t> elements_before_;      // of each place in expected_
  bool followed_ = false;
};

}  // namespace dslaunch
