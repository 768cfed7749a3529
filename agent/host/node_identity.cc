#include "agent/host/node_identity.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

namespace dslaunch {
namespace {

std::string ReadSmallFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string NamespaceId(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0 ? std::to_string(info.st_ino) : "";
}

}  // namespace

std::string NodeIdentity() {
  return ReadSmallFile("/proc/sys/kernel/random/boot_id") + NamespaceId("/proc/self/ns/pid") + "," +
         NamespaceId("/proc/self/ns/net");
}

}  // namespace dslaunch
