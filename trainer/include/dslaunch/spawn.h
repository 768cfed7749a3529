// Starts ranks from inside a program, without a launcher.
//
//   int main() {
//     dslaunch::Spawn(4, [](int rank) { Train(rank); });
//   }
#pragma once

#include <functional>

namespace dslaunch {

// Runs fn(rank) in `ranks` processes on this machine, with the environment that a launcher sets
// (InitProcessGroup reads it). Returns when all have succeeded. Their changes in memory are not
// visible to the caller. No process outlives the caller, however it ends.
//
// If a rank fails, the others are stopped: SIGTERM, and SIGKILL 5 s later. Spawn then throws
// TrainError, naming the rank and its exit code or signal (code 128 + signal). A rank fails if fn
// throws: it prints the message to stderr and exits with the code of the TrainError, or 1 for any
// other exception.
//
// While this process has only one thread, the ranks are forked from it. With several threads (after
// InitProcessGroup or the computation of large tensors) forking is not safe: each rank then starts
// this program again with the same arguments, repeats main() up to the same Spawn call (calls are
// counted) and runs fn there.
//
// Throws TrainError if a launcher has started this process (RANK or WORLD_SIZE is set).
void Spawn(int ranks, const std::function<void(int rank)>& fn);

}  // namespace dslaunch
