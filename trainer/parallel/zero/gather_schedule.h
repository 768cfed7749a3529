// Decides when the units of a sharded model (ZeRO stage 3) are gathered and released. Performs no
// I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/parallel/zero/access_trace.h"

namespace dslaunch {

// Limits in numbers of elements. The names are DeepSpeed's names without stage3_.
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool overlap = true;  // true to gather units ahead, while operations run
};

struct GatherAction {
  enum class Kind { kRelease, kGather, kGatherAhead };
  Kind kind;
  size_t unit;
};

// Decides how long a unit, which is a group of parameters that is gathered as a whole, stays live.
// A unit is live from its gather to its release. In a pass, from Begin to End:
// - At most max_live_parameters elements are live, except for the needs of one operation.
// - Each pass is expected to read the same units in the same order as the previous pass of its kind
//   (training or inference). A unit is then released as soon as an operation has run, if more than
//   max_reuse_distance elements are read before its next use, and more than prefetching would
//   gather again. The next units are gathered ahead, at most prefetch_bucket_size elements. If
//   there is no room, the unit whose next use is farthest is released first.
// - In a first pass, and after a deviation from the expected order, nothing is gathered ahead, and
//   at most max_reuse_distance elements are live as well. If a unit needs room, the least recently
//   used unit is released. Consecutive operations that read one unit gather it once, whatever the
//   limits.
// The decisions follow from the order of operations alone, so they are the same on all ranks.
//
// The caller carries out an action, calls Gathered or Released, and asks for the next action. Units
// are numbered from 0 in the order of AddUnit.
class GatherSchedule {
 public:
  explicit GatherSchedule(const GatherLimits& limits);

  // Adds a unit of `elements` elements. If `stays`, the unit is always live and does not count
  // towards any limit.
  void AddUnit(int64_t elements, bool stays);

  // Begins a pass: training if `trains`, otherwise inference. The two kinds of passes have separate
  // expected orders. Outside of passes there are no limits, and no unit is gathered ahead or
  // released.
  void Begin(bool trains);
  // Ends the pass. Does nothing outside of a pass.
  void End();
  bool in_pass() const { return in_pass_; }

  // Records that an operation reads the unit. Call Read before NextFor.
  void Read(size_t unit);
  // Returns the next action that is needed to make the unit live: the release of another unit if
  // there is no room and a unit can be released, otherwise the gather. Returns nullopt if the unit
  // is live.
  std::optional<GatherAction> NextFor(size_t unit) const;
  // Returns the next action for gathering ahead: the gather of a unit, or the release of a unit
  // that makes room. Returns nullopt outside of passes, without GatherLimits::overlap, while the
  // order differs from the expected order, and if the limits allow no further gather.
  std::optional<GatherAction> NextAhead();

  // Prevents the release of a live unit while an operation that reads the unit runs.
  void Pin(size_t unit);
  // Undoes one Pin. Returns true if the caller must now release the unit: in a pass that follows
  // the expected order, if no other operation or Hold needs the unit and its next use is far away.
  bool Unpin(size_t unit);
  // Prevents the release of the unit, live or not, until Unhold is called as often as Hold.
  void Hold(size_t unit);
  // Undoes one Hold. Returns true if no other Hold remains.
  bool Unhold(size_t unit);

  // Records that the unit is live. `ahead` is true after an action kGatherAhead.
  void Gathered(size_t unit, bool ahead);
  // Records that the unit is no longer live.
  void Released(size_t unit);

  bool IsLive(size_t unit) const { return units_.at(unit).live; }
  bool IsHeld(size_t unit) const { return units_.at(unit).held > 0; }
  int64_t live_elements() const { return live_elements_; }

 private:
  struct Unit {
    int64_t elements = 0;
    bool live = false;
    bool ahead = false;     // true if the unit is live but was not read yet
    int held = 0;           // number of calls of Hold without Unhold
    int pinned = 0;         // number of running operations that read the unit
    uint64_t last_use = 0;  // value of clock_ at the last use
  };

  int64_t Limit() const;
  bool HasRoom(int64_t elements) const { return live_elements_ + elements <= Limit(); }
  std::optional<size_t> UnitToRelease(int64_t place) const;
  void ClearAhead(Unit& unit);

  const GatherLimits limits_;
  const int64_t reuse_distance_;
  std::vector<Unit> units_;
  bool in_pass_ = false;
  std::array<AccessTrace, 2> orders_;  // one trace for inference and one for training
  AccessTrace* order_ = &orders_[0];   // trace of the current or last pass
  int64_t scanned_ = 0;  // position of the first expected use whose unit may not be live
  int64_t ahead_elements_ = 0;
  int64_t live_elements_ = 0;
  uint64_t clock_ = 0;  // number of uses so far
};

}  // namespace dslaunch
