// The identity of a dslaunch-agent binary and the line by which it introduces itself. Standard
// library only.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// A hello line is `DSLAUNCH-HELLO <nonce> <build id>\n`. It is the first thing an agent writes to
// its stream, so that whatever a login shell printed before it can be told from the protocol.
inline constexpr std::string_view kHelloMagic = "DSLAUNCH-HELLO ";

std::string FormatHello(std::string_view nonce, std::string_view build_id);

// What the front end must know of an agent file before it starts or copies it.
struct ElfIdentity {
  std::string build_id;  // the linker's NT_GNU_BUILD_ID in lower-case hex
  std::string machine;   // as `uname -m` says it, "x86_64"; empty when not known
};

// Reads an ELF file of this machine's word size. kBadInput when it is none or has no build id.
Result<ElfIdentity> ReadElfIdentity(const std::string& path);

// The running program's own build id in lower-case hex; empty when it was linked without one.
std::string OwnBuildId();

}  // namespace dslaunch
