// Implements a dispatch mode of a thread that intercepts every operation, in backward passes too.
// Units (groups of sharded parameters) among the operation's inputs are gathered while the
// operation runs.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>

#include "trainer/parallel/zero/gathered_unit.h"

namespace dslaunch {

// Gathers units when the dispatch mode intercepts an operation. Called in the operation's thread.
class UnitGatherer {
 public:
  // Gathers `unit` for an operation that reads or writes it, and keeps it gathered until Done.
  // Throws TrainError kBadInput if the operation is not allowed at this point.
  virtual void Use(GatheredUnit& unit, const c10::OperatorHandle& op, bool writes) = 0;
  // Ends the use that Use began, after the operation has run.
  virtual void Done(GatheredUnit& unit) noexcept = 0;
  // Returns `unit` in another dtype, as a separate unit that is gathered from the same shard.
  // Returns null if autocast has to make a copy.
  virtual GatheredUnit* CastOf(GatheredUnit& unit, at::ScalarType dtype) = 0;

 protected:
  ~UnitGatherer() = default;
};

// Enables the mode in this thread. Each call must be undone by a call of LeaveGatherMode.
void EnterGatherMode();
void LeaveGatherMode();

// Dispatch key of the mode. A c10::impl::ExcludeDispatchKeyGuard of this key hides operations from
// the mode. PyTorch reserves the key for other libraries' modes and handles it before autograd and
// autocast.
inline constexpr c10::DispatchKey kGatherMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace dslaunch
