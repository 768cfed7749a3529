// Finds out from the stacks of a rank whether it waits for other ranks, and where. Pure.
#pragma once

#include <string>

#include "proto/stacks.pb.h"

namespace dslaunch {

// Where a rank waits for others, as far as its stacks show it.
struct WaitPlace {
  enum class Kind {
    kNone,   // it waits for no rank: in the program's own code, in a read of a file, asleep
    kMaybe,  // in a native call that may be an exchange
    kKnown,  // in an exchange between ranks
  };
  Kind kind = Kind::kNone;
  std::string call;  // the exchange: "all_reduce"; empty: unknown
  std::string site;  // the program's line that began it, "train (train.py:92)"; empty: unknown
};

// Finds the exchange in which a rank waits: a function of torch.distributed, DeepSpeed, Horovod or
// torch.cuda, an exchange that the rank has reported, or, in a program without Python, a system
// call that reads from a socket.
WaitPlace FindWaitPlace(const pb::RankStacks& stacks);

// Returns whether a process of the rank is an interpreter of Python.
bool HasPython(const pb::RankStacks& stacks);

// Returns the process that shows what a rank does in which no Python thread has frames: the first
// whose main thread is in the program's own lines or in an exchange of C or C++, or else the last,
// for which a shell waits. Precondition: there is one.
const pb::ProcessStacks& ProgramOf(const pb::RankStacks& stacks);

// Returns whether a thread of `dslaunch train` waits for its data, which another thread reads.
bool WaitsForBatch(const pb::ThreadStack& thread);

// Returns the thread that reads for the one that waits for a batch; nullptr if none reads.
const pb::ThreadStack* FindBatchReader(const pb::RankStacks& stacks,
                                       const pb::ThreadStack& waiting);

// Returns the thread with its innermost frame and all frames from the program's own code on,
// because the frames of libraries between would hide the program's line. Of C and
// C++, the call of MPI stands for the frames inside of it.
pb::ThreadStack WithoutLibraries(const pb::ThreadStack& thread, bool is_native);

}  // namespace dslaunch
