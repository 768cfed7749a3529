#include "agent/host/node_identity.h"

#include <sys/stat.h>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

std::string NamespaceId(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0 ? std::to_string(info.st_ino) : "";
}

}  // namespace

std::string NodeIdentity() {
  return ReadWhole("/proc/sys/kernel/random/boot_id").value_or("") +
         NamespaceId("/proc/self/ns/pid") + "," + NamespaceId("/proc/self/ns/net");
}

}  // namespace dslaunch
