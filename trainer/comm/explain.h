// What error texts of the libraries mean to a user.
#pragma once

#include <string_view>

namespace dslaunch {

enum class CommFailure {
  kNone,      // not a communication error
  kPeerLost,  // another rank is gone; it, not this one, is the cause
  kTimedOut,  // another rank did not answer in time
};

// Reads the texts of Gloo's and c10d's exceptions, which have no codes.
CommFailure ClassifyCommFailure(std::string_view what);

// Whether an exception's text says that memory could not be had.
bool IsOutOfMemory(std::string_view what);

// Follows the name of a parameter in what LibTorch throws where one is read that ZeRO stage 3 has
// not gathered.
inline constexpr char kNotGathered[] =
    " are not here: ZeRO stage 3 keeps a part of them on each rank, and gathers them for the "
    "operations of the thread that made the engine, in its passes; what reads them otherwise "
    "(another thread, torch::save, data_ptr()) needs a dslaunch::GatheredParameters of them that "
    "lives meanwhile, made on all ranks; to save the model call engine.SaveCheckpoint (`dslaunch "
    "checkpoint export` makes one file of it)";

// Whether an exception's text is of that kind: a mistake of the program.
bool IsNotGathered(std::string_view what);

}  // namespace dslaunch
