// Starts ranks from within a program, without a launcher.
//
//   int main() {
//     dslaunch::Spawn(4, [](int rank) { Train(rank); });
//   }
#pragma once

#include <functional>

namespace dslaunch {

// Runs fn(rank) in `ranks` processes on this machine, with the environment that a launcher sets
// (InitProcessGroup reads it). Returns when all ranks have succeeded. Changes that the ranks make
// in memory are not visible to the caller. No rank outlives the caller, however the caller ends.
//
// If a rank fails, Spawn stops the other ranks by SIGTERM, and by SIGKILL 5 s later. It then throws
// TrainError, naming the rank and its exit code or signal (code 128 + signal). A rank in which fn
// throws prints the message to stderr and exits with the code of the TrainError, or with 1 for any
// other exception.
//
// The ranks are forked if this process has only one thread. With several threads (after
// InitProcessGroup or a computation with large tensors) forking is not safe. Each rank then starts
// this program again with the same arguments, repeats main() up to the same Spawn call, and runs fn
// there. A rank finds that call by counting calls.
//
// Throws TrainError if a launcher has started this process (RANK or WORLD_SIZE is set).
void Spawn(int ranks, const std::function<void(int rank)>& fn);

}  // namespace dslaunch
