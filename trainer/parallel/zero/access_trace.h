// Records the order in which a pass reads units (groups of parameters), to predict the next pass.
// Performs no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace dslaunch {

// Predicts that each pass reads the same units in the same order as the previous pass. Once a pass
// deviates, nothing is predicted for the rest of that pass.
class AccessTrace {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  explicit AccessTrace(std::vector<int64_t> unit_elements);
  void AddUnit(int64_t elements);  // adds a unit, whose index is the number of earlier units

  void Begin();
  void Use(size_t unit);
  void End();  // ends a pass; expected() is then the sequence of units read since Begin

  // Returns whether this pass has read exactly the expected units so far. The methods below may be
  // called only if this returns true.
  bool followed() const { return followed_; }
  const std::vector<size_t>& expected() const { return expected_; }
  // Returns the position in expected() of the next read.
  int64_t place() const { return static_cast<int64_t>(seen_.size()); }
  // Returns the position in expected() of the next read of this unit, or kNever if none is
  // expected.
  int64_t NextUse(size_t unit) const;
  // Returns the number of elements that are read before the next read of this unit, or kNever if
  // none is expected. A unit that is read several times in a row counts once.
  int64_t ElementsUntilNextUse(size_t unit) const;

 private:
  std::vector<int64_t> unit_elements_;
  std::vector<size_t> expected_, seen_;
  std::vector<std::vector<int64_t>> places_;  // positions in expected_ at which each unit is read
  // Number of elements read before each position of expected_.
  std::vector<int64_t> elements_before_;
  bool followed_ = false;
};

}  // namespace dslaunch
