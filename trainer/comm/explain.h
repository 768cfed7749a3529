// Classifies errors of LibTorch and Gloo by their texts.
#pragma once

#include <string_view>

namespace dslaunch {

enum class CommFailure {
  kNone,      // not a communication error
  kPeerLost,  // another rank is gone; it, not this one, is the cause
  kTimedOut,  // another rank did not answer in time
};

// Classifies an exception of Gloo or c10d by its text, because they have no codes.
CommFailure ClassifyCommFailure(std::string_view what);

// Returns whether an exception's text reports that memory could not be allocated.
bool IsOutOfMemory(std::string_view what);

// Comes after the name of a unit in the error that LibTorch throws when a program reads a parameter
// that ZeRO stage 3 has not gathered.
inline constexpr char kNotGathered[] =
    " are not here: ZeRO stage 3 keeps a part of them on each rank, and gathers them for the "
    "operations of the thread that made the engine, in its passes; what reads them otherwise "
    "(another thread, torch::save, data_ptr()) needs a dslaunch::GatheredParameters of them that "
    "lives meanwhile, made on all ranks; to save the model call engine.SaveCheckpoint (`dslaunch "
    "checkpoint export` makes one file of it)";

// Returns whether an exception's text contains kNotGathered: the program has read a parameter that
// is not gathered.
bool IsNotGathered(std::string_view what);

}  // namespace dslaunch
