// When the units of a sharded model are gathered and released (ZeRO stage 3). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/parallel/zero/access_trace.h"

namespace dslaunch {

// Numbers of elements. The names are DeepSpeed's, without stage3_.
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool overlap = true;  // gather ahead, while operations run
};

struct GatherAction {
  enum class Kind { kRelease, kGather, kGatherAhead };
  Kind kind;
  size_t unit;
};

// Decides in a pass (Begin to End) how long a gathered unit stays, as long as the limits allow:
// - At most max_live_parameters are live, except for the needs of one operation.
// - Each pass is expected to read what the last one of its kind (training or inference) read, in
//   the same order. Then a unit is released as soon as an operation has run, if more than
//   max_reuse_distance elements are read before its next use, and more than prefetching would
//   gather again. The next units are gathered ahead, at most prefetch_bucket_size elements. If
//   there is no room, the unit whose next use is farthest is released first.
// - In a first pass, or one that has left the expected order, nothing is gathered ahead, at most
//   max_reuse_distance elements are live as well, and when a unit needs room the least recently
//   used one is released: consecutive operations that read one unit gather it once, whatever the
//   limits.
// All of this follows from the order of operations alone, so it is the same on all ranks.
//
// The caller carries an action out, calls Gathered or Released, and asks for the next one. Units
// are numbered from 0 in the order of AddUnit.
class GatherSchedule {
 public:
  explicit GatherSchedule(const GatherLimits& limits);

  // A unit that stays is live and held for ever, and counts for no limit.
  void AddUnit(int64_t elements, bool stays);

  // Outside of a pass nothing is limited, gathered ahead or released.
  void Begin(bool trains);
  void End();
  bool in_pass() const { return in_pass_; }

  // Records that an operation reads the unit. NextFor then returns the next action that makes the
  // unit live, or nullopt if it is.
  void Read(size_t unit);
  std::optional<GatherAction> NextFor(size_t unit) const;
  // Returns the next action that gathers ahead, or nullopt.
  std::optional<GatherAction> NextAhead();

  // Keeps a live unit while the operation runs. Unpin returns whether to release it then.
  void Pin(size_t unit);
  bool Unpin(size_t unit);
  // Keeps the unit, live or not, until as many calls of Unhold, the last of which returns true.
  void Hold(size_t unit);
  bool Unhold(size_t unit);

  void Gathered(size_t unit, bool ahead);
  void Released(size_t unit);

  bool IsLive(size_t unit) const { return units_.at(unit).live; }
  bool IsHeld(size_t unit) const { return units_.at(unit).held > 0; }
  int64_t live_elements() const { return live_elements_; }

 private:
  struct Unit {
    int64_t elements = 0;
    bool live = false;
    bool ahead = false;     // live, but not read yet
    int held = 0;           // calls of Hold without Unhold
    int pinned = 0;         // operations that read it now
    uint64_t last_use = 0;  // time on clock_
  };

  int64_t Limit() const;
  bool HasRoom(int64_t elements) const { return live_elements_ + elements <= Limit(); }
  std::optional<size_t> UnitToRelease(int64_t place) const;
  void ClearAhead(Unit& unit);

  const GatherLimits limits_;
  const int64_t reuse_distance_;
  std::vector<Unit> units_;
  bool in_pass_ = false;
  std::array<AccessTrace, 2> orders_;  // inference, training
  AccessTrace* order_ = &orders_[0];   // the last pass'
  int64_t scanned_ = 0;                // expected uses before it are live
  int64_t ahead_elements_ = 0;
  int64_t live_elements_ = 0;
  uint64_t clock_ = 0;  // counts uses
};

}  // namespace dslaunch
