// Reads the build ID of a dslaunch-agent binary and the machine type of ELF files, and formats the
// hello line that carries the build ID. Uses only the standard library.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Begins a hello line: `DSLAUNCH-HELLO <nonce> <build ID>
// `. The hello line is the first line that an agent writes to its stream, so the front end can skip
// any text that a login shell printed before.
inline constexpr std::string_view kHelloMagic = "DSLAUNCH-HELLO ";

std::string FormatHello(std::string_view nonce, std::string_view build_id);

// Properties that the front end reads from an agent's file before it starts or copies the agent.
struct ElfIdentity {
  std::string build_id;  // linker's NT_GNU_BUILD_ID in lower-case hex
  std::string machine;   // see ElfMachine()
};

// Number of leading bytes that ElfMachine() needs.
inline constexpr size_t kElfMachineHead = 20;

// Returns the machine type of an ELF file by its first bytes, as in `uname -m` ("x86_64"). Returns
// an empty text if it is not an ELF file, or if its type is unknown. Pure.
std::string ElfMachine(std::string_view head);

// Reads the identity of an ELF file of this machine's word size. Fails with kBadInput if the file
// is not such a file, or has no build ID.
Result<ElfIdentity> ReadElfIdentity(const std::string& path);

// Returns the running program's build ID in lower-case hex; empty if the program was linked without
// one.
std::string OwnBuildId();

}  // namespace dslaunch
