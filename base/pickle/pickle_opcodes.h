// The opcodes of pickles; for this folder alone.
#pragma once

#include "base/pickle/pickle_machine.h"

namespace dslaunch {

struct PickleOpcode {
  unsigned char code;
  const char* name;
  bool (*run)(PickleMachine& machine);  // null if checkpoints do not use it
};

// Returns the opcode with this code; null if there is none.
const PickleOpcode* FindPickleOpcode(unsigned char code);

}  // namespace dslaunch
