// Ranks from inside a program, for those who start it without a launcher.
//
//   int main() {
//     dslaunch::Spawn(4, [](int rank) { Train(rank); });
//   }
#pragma once

#include <functional>

namespace dslaunch {

// Runs fn(rank) in `ranks` processes of this machine, with the environment that a launcher would
// give them (InitProcessGroup reads it), and returns when all have ended well. Nothing that they
// change in memory comes back, and none outlives the caller, however it ends.
//
// The first rank that fails ends the others: SIGTERM, and SIGKILL 5 s later. It is thrown as
// TrainError, naming the rank and its exit code, or the signal that ended it (then 128 + signal is
// the code). A rank fails by an exception out of fn: it says it on stderr and exits with the code
// of a TrainError, 1 for anything else.
//
// While this process has only one thread, the ranks are forked from it. Afterwards that is not
// safe, so each is this program started anew with the same arguments: it does again what main()
// did so far, and leaves it at this call (counting them) to run fn. With InitProcessGroup called or
// large tensors computed before, that is so.
//
// In a process that has its place from a launcher already (RANK or WORLD_SIZE is set) this throws
// TrainError.
void Spawn(int ranks, const std::function<void(int rank)>& fn);

}  // namespace dslaunch
