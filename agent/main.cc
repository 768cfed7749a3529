// dslaunch-agent: a node's keeper and, forked from it, its agent. Started by dslaunch over SSH or
// locally.
#include <cstdio>
#include <cstring>
#include <string>

#include "agent/agent_main.h"
#include "agent/build_id.h"
#include "agent/keeper.h"
#include "proto/contract/exit_code.h"

namespace {

bool IsHex(const char* text) {
  return *text != '\0' && std::strspn(text, "0123456789abcdef") == std::strlen(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("dslaunch-agent %s (build %s)\n", DSLAUNCH_VERSION, dslaunch::OwnBuildId().c_str());
    return 0;
  }
  if (argc == 4 && std::strcmp(argv[1], "keeper") == 0 && std::strcmp(argv[2], "--nonce") == 0 &&
      IsHex(argv[3])) {
    dslaunch::KeeperOptions options;
    options.nonce = argv[3];
    options.build_id = dslaunch::OwnBuildId();
    options.run_agent = dslaunch::RunAgent;
    return dslaunch::RunKeeper(options);
  }
  std::fprintf(stderr,
               "dslaunch-agent is started by dslaunch, not by hand.\n"
               "usage: dslaunch-agent keeper --nonce HEX | --version\n");
  return dslaunch::ToInt(dslaunch::ExitCode::kUsage);
}
