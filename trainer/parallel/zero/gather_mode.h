// A dispatch mode of a thread: it sees the inputs of every operation, in backward passes too, and
// has the units among them gathered while the operation runs.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>

#include "trainer/parallel/zero/gathered_unit.h"

namespace dslaunch {

// Gathers units for the mode, in the thread of the operation.
class UnitGatherer {
 public:
  // Gathers `unit` for an operation that reads or writes it, and holds it until Done. Throws
  // TrainError kBadInput if the operation may not do so now.
  virtual void Use(GatheredUnit& unit, const c10::OperatorHandle& op, bool writes) = 0;
  virtual void Done(GatheredUnit& unit) noexcept = 0;
  // Returns `unit` in another dtype, as a unit of its own that is gathered from the same shard.
  // Null if autocast has to make a copy.
  virtual GatheredUnit* CastOf(GatheredUnit& unit, at::ScalarType dtype) = 0;

 protected:
  ~UnitGatherer() = default;
};

// Turn the mode on in this thread until as many calls of LeaveGatherMode.
void EnterGatherMode();
void LeaveGatherMode();

// The mode's key: a c10::impl::ExcludeDispatchKeyGuard of it hides operations from the mode.
// PyTorch reserves this key for other libraries' modes and does not use it. It is handled before
// autograd and autocast.
inline constexpr c10::DispatchKey kGatherMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace dslaunch
