// write_universal CHECKPOINT OUT: writes a checkpoint as DeepSpeed's universal one.
#include "trainer/foreign/write_universal.h"

#include <iostream>

#include "trainer/base/train_error.h"

int main(int argc, char** argv) {
  try {
    if (argc != 3) return 64;
    dslaunch::WriteUniversal(dslaunch::ReadCheckpoint(argv[1]), argv[2], {});
    return 0;
  } catch (const dslaunch::TrainError& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
