// The order in which a pass reads units, as a prediction for the next pass. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace dslaunch {

// Each pass is expected to read the units that the last one read, in the same order. Once a pass
// deviates, nothing is expected of the rest of it.
class AccessTrace {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  explicit AccessTrace(std::vector<int64_t> unit_elements);
  void AddUnit(int64_t elements);  // its index is the number of units so far

  void Begin();
  void Use(size_t unit);
  void End();  // the units read since Begin become expected()

  // Whether this pass has read the expected units so far. If not, the methods below have no
  // meaning.
  bool followed() const { return followed_; }
  const std::vector<size_t>& expected() const { return expected_; }
  // Position in expected() of the first use that is still to come.
  int64_t place() const { return static_cast<int64_t>(seen_.size()); }
  // Position in expected() of the next use of this unit, or kNever.
  int64_t NextUse(size_t unit) const;
  // Elements read before that use; a unit that is read several times in a row counts once. kNever
  // if there is no such use.
  int64_t ElementsUntilNextUse(size_t unit) const;

 private:
  std::vector<int64_t> unit_elements_;
  std::vector<size_t> expected_, seen_;
  std::vector<std::vector<int64_t>> places_;  // positions of each unit in expected_
  std::vector<int64_t> elements_before_;      // elements before each position of expected_
  bool followed_ = false;
};

}  // namespace dslaunch
