// Lists the opcodes of pickles and the functions that execute them. Used only in this folder.
#pragma once

#include "base/pickle/pickle_machine.h"

namespace dslaunch {

struct PickleOpcode {
  unsigned char code;
  const char* name;
  bool (*run)(PickleMachine& machine);  // function that executes the opcode; nullptr if unsupported
};

// Returns the opcode with this code; nullptr if no opcode has it.
const PickleOpcode* FindPickleOpcode(unsigned char code);

}  // namespace dslaunch
