// Reads the build ID of a dslaunch-agent binary and the machine type of ELF files, and formats the
// hello line that carries the build ID. Uses only the standard library.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// The beginning of a hello line, which is `DSLAUNCH-HELLO <nonce> <build ID>` and a newline. An
// agent writes this line first to its stream, so the front end can skip any text that a login shell
// printed before.
inline constexpr std::string_view kHelloMagic = "DSLAUNCH-HELLO ";

std::string FormatHello(std::string_view nonce, std::string_view build_id);

// Properties of an agent's file that the front end reads before it starts or copies the agent.
struct ElfIdentity {
  std::string build_id;  // linker's NT_GNU_BUILD_ID in lower-case hexadecimal
  std::string machine;   // machine type as ElfMachine() returns it
};

// Number of bytes at the beginning of a file that ElfMachine() needs.
inline constexpr size_t kElfMachineHead = 20;

// Returns the machine type of an ELF file, as `uname -m` prints it ("x86_64"), from the file's
// first bytes. Returns an empty text if the file is not an ELF file or its type is unknown. Pure.
std::string ElfMachine(std::string_view head);

// Returns the build ID and machine type of an ELF file. Fails with kBadInput if the file is not an
// ELF file of this machine's word size, or has no build ID.
Result<ElfIdentity> ReadElfIdentity(const std::string& path);

// Returns the running program's build ID in lower-case hexadecimal; empty if the program was linked
// without a build ID.
std::string OwnBuildId();

}  // namespace dslaunch
