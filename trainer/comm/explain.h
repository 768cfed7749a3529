// Classifies errors of LibTorch and Gloo by their texts.
#pragma once

#include <string_view>

namespace dslaunch {

enum class CommFailure {
  kNone,      // the exception is not a communication error
  kPeerLost,  // another rank was lost, so this rank is not the cause
  kTimedOut,  // another rank did not answer in time
};

// Classifies an exception of Gloo or c10d by its text, because these exceptions have no codes.
CommFailure ClassifyCommFailure(std::string_view what);

// Returns whether an exception's text reports that memory could not be allocated.
bool IsOutOfMemory(std::string_view what);

// Text that follows the name of a unit of parameters in the error that LibTorch throws when a
// program reads a parameter that ZeRO stage 3 has not gathered.
inline constexpr char kNotGathered[] =
    " are not here: ZeRO stage 3 keeps a part of them on each rank, and gathers them for the "
    "operations of the thread that made the engine, in its passes; what reads them otherwise "
    "(another thread, torch::save, data_ptr()) needs a dslaunch::GatheredParameters of them that "
    "lives meanwhile, made on all ranks; to save the model call engine.SaveCheckpoint (`dslaunch "
    "checkpoint export` makes one file of it)";

// Returns whether an exception's text reports that the program read a parameter that is not
// gathered (kNotGathered).
bool IsNotGathered(std::string_view what);

}  // namespace dslaunch
