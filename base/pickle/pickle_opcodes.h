// Lists the opcodes of pickles. Used only in this folder.
#pragma once

#include "base/pickle/pickle_machine.h"

namespace dslaunch {

struct PickleOpcode {
  unsigned char code;
  const char* name;
  bool (*run)(PickleMachine& machine);  // nullptr if checkpoints do not use the opcode
};

// Returns the opcode with this code; nullptr if there is none.
const PickleOpcode* FindPickleOpcode(unsigned char code);

}  // namespace dslaunch
