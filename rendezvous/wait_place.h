// Determines from the stacks of a rank whether the rank waits for other ranks, and where. All
// functions are pure.
#pragma once

#include <string>

#include "proto/stacks.pb.h"

namespace dslaunch {

// The place where a rank waits for other ranks, as far as its stacks show it.
struct WaitPlace {
  enum class Kind {
    // The rank waits for no other rank: in the program's own code, in a read of a file, or asleep.
    kNone,
    kMaybe,  // the rank is in a native call that may be an exchange
    kKnown,  // the rank is in an exchange between ranks
  };
  Kind kind = Kind::kNone;
  std::string call;  // name of the exchange, such as "all_reduce"; empty if unknown
  // The program's line that began the exchange, such as "train (train.py:92)"; empty if unknown.
  std::string site;
};

// Returns the exchange in which a rank waits; kNone if the stacks show no exchange. An exchange is
// a function of torch.distributed, DeepSpeed, Horovod or torch.cuda, or an exchange that the rank
// has reported. In a program without Python, it is also a system call that reads from a socket.
WaitPlace FindWaitPlace(const pb::RankStacks& stacks);

// Returns whether a process of the rank is a Python interpreter.
bool HasPython(const pb::RankStacks& stacks);

// Returns the process that shows the activity of a rank in which no Python thread has frames. This
// is the first process whose main thread is in the program's own lines or in an exchange of C or
// C++. If there is none, it is the last process, for which a shell waits. Precondition: the rank
// has a process.
const pb::ProcessStacks& ProgramOf(const pb::RankStacks& stacks);

// Returns whether the thread belongs to `dslaunch train` and waits for data that another thread
// reads.
bool WaitsForBatch(const pb::ThreadStack& thread);

// Returns the thread that reads data for `waiting`, a thread that waits for a batch; nullptr if no
// thread reads data.
const pb::ThreadStack* FindBatchReader(const pb::RankStacks& stacks,
                                       const pb::ThreadStack& waiting);

// Returns the thread with its innermost frame and with all frames from the program's own code
// outward. The frames of libraries between them are removed, because they would hide the program's
// line. If `is_native` (a program without Python), a call of an MPI function is shown instead of
// the innermost frame inside of it.
pb::ThreadStack WithoutLibraries(const pb::ThreadStack& thread, bool is_native);

}  // namespace dslaunch
