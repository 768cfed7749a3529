// The build id of a dslaunch-agent binary, the hello line that carries it, and the machine type of
// ELF files. Standard library only.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// A hello line is `DSLAUNCH-HELLO <nonce> <build id>\n`. It is the first line that an agent writes
// to its stream, so the front end can skip whatever a login shell printed before it.
inline constexpr std::string_view kHelloMagic = "DSLAUNCH-HELLO ";

std::string FormatHello(std::string_view nonce, std::string_view build_id);

// Properties that the front end reads from an agent's file before it starts or copies the agent.
struct ElfIdentity {
  std::string build_id;  // the linker's NT_GNU_BUILD_ID in lower-case hex
  std::string machine;   // see ElfMachine()
};

// Number of leading bytes that ElfMachine() needs.
inline constexpr size_t kElfMachineHead = 20;

// Returns the machine type of an ELF file by its first bytes, as in `uname -m` ("x86_64"); empty if
// it is not an ELF file, or its type is not known here. Pure.
std::string ElfMachine(std::string_view head);

// Reads an ELF file of this machine's word size. Fails with kBadInput if the file is not one, or
// has no build id.
Result<ElfIdentity> ReadElfIdentity(const std::string& path);

// Returns the running program's build id in lower-case hex, or an empty string if it was linked
// without one.
std::string OwnBuildId();

}  // namespace dslaunch
