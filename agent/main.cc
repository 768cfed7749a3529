// Implements dslaunch-agent, which dslaunch starts over SSH or locally. The program has three
// roles. It is a node's supervisor, from which the agent is forked; an inspector of a job that runs
// or ran on this node; or a relay to other nodes.
#include <fcntl.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "agent/call_back/call_back.h"
#include "agent/host/logout.h"
#include "agent/inspect/await_end.h"
#include "agent/inspect/inspect.h"
#include "agent/node/agent_main.h"
#include "agent/pmix/mpi_server.h"
#include "agent/pmix_server.h"
#include "agent/relay/relay.h"
#include "agent/supervisor/resume_socket.h"
#include "agent/supervisor/supervisor.h"
#include "base/exit_code.h"
#include "base/os/build_id.h"
#include "base/text/hex.h"
#include "proto/contract/job_id.h"

namespace {

std::optional<uint32_t> ReadNumber(const char* text) {
  uint32_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, status] = std::from_chars(text, end, number);
  if (status != std::errc() || rest != end) return std::nullopt;
  return number;
}

// Updates the times of this executable's file. InstallScript (cli/transport/ssh_bootstrap.h)
// removes copies of the agent that were not started for long. If this fails, this copy is only
// removed earlier.
void NoteStart() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string_view own(path, size > 0 ? static_cast<size_t>(size) : 0);
  if (own.substr(own.rfind('/') + 1).starts_with("agent-"))
    ::utimensat(AT_FDCWD, "/proc/self/exe", nullptr, 0);
}

// Reads the options after the nonce. Returns false if an option is invalid.
bool ReadSupervisorFlags(int argc, char** argv, dslaunch::SupervisorOptions& options,
                         bool& detachable) {
  for (int at = 4; at < argc; ++at) {
    const std::string_view flag = argv[at];
    if (flag == "--command-fd" && at + 1 < argc) {
      const std::optional<uint32_t> fd = ReadNumber(argv[++at]);
      if (!fd) return false;
      options.command_fd = static_cast<int>(*fd);
    } else if (flag == "--in-step") {
      options.in_step = true;
    } else if (flag == "--resumable") {
      options.resumable = true;
    } else if (flag == "--detachable") {
      detachable = true;
    } else {
      return false;
    }
  }
  return true;
}

// Returns the options in the arguments "call-back --nonce HEX PLACE PIN ENDPOINT,... ARGUMENTS".
dslaunch::CallBackOptions ReadCallBackOptions(char** argv) {
  dslaunch::CallBackOptions options;
  options.nonce = argv[3];
  options.place = argv[4];
  options.pin = argv[5];
  std::istringstream endpoints(argv[6]);
  for (std::string endpoint; std::getline(endpoints, endpoint, ',');)
    options.endpoints.push_back(endpoint);
  return options;
}

void PrintUsage() {
  std::fprintf(
      stderr,
      "dslaunch-agent is started by dslaunch, not by hand.\n"
      "usage: dslaunch-agent supervisor --nonce HEX [--command-fd N] [--in-step] [--resumable] "
      "[--detachable]\n"
      "       dslaunch-agent resume --nonce HEX SOCKET\n"
      "       dslaunch-agent read --nonce HEX\n"
      "       dslaunch-agent await --nonce HEX HEX\n"
      "       dslaunch-agent attach --nonce HEX JOB NODE\n"
      "       dslaunch-agent relay --nonce HEX\n"
      "       dslaunch-agent call-back --nonce HEX PLACE PIN ENDPOINT,... ARGUMENTS\n"
      "       dslaunch-agent pmi\n"
      "       dslaunch-agent --version\n");
}

int Run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("dslaunch-agent %s (build %s)\n", DSLAUNCH_VERSION, dslaunch::OwnBuildId().c_str());
    return 0;
  }
  // The agent itself starts this mode, so it has no nonce.
  if (argc == 2 && std::strcmp(argv[1], "pmi") == 0)
    return dslaunch::RunMpiServer(/*library=*/nullptr, "dslaunch-pmi");
  // The arguments of all other modes are MODE --nonce HEX ...
  const bool has_nonce =
      argc >= 4 && std::strcmp(argv[2], "--nonce") == 0 && dslaunch::IsHex(argv[3]);
  const std::string mode = has_nonce ? argv[1] : "";
  dslaunch::SupervisorOptions supervisor;
  bool detachable = false;
  if (mode == "supervisor" && ReadSupervisorFlags(argc, argv, supervisor, detachable)) {
    if (detachable && dslaunch::ShouldLeaveSession(dslaunch::ReadLogoutInfo()))
      dslaunch::LeaveSession(argv);
    NoteStart();
    supervisor.nonce = argv[3];
    supervisor.build_id = dslaunch::OwnBuildId();
    supervisor.run_agent = [command = supervisor.command_fd](int grpc_fd, int control_fd,
                                                             int sockets_fd) {
      return dslaunch::RunAgent(grpc_fd, control_fd, sockets_fd, command, dslaunch::PmixServer());
    };
    return dslaunch::RunSupervisor(supervisor);
  }
  // The arguments are call-back --nonce HEX PLACE PIN ENDPOINT,... ARGUMENTS.
  if (mode == "call-back" && argc > 7) {
    dslaunch::CallBackOptions call_back = ReadCallBackOptions(argv);
    argv[6] = argv[0];
    call_back.run_agent = [argc, argv] { return Run(argc - 6, argv + 6); };
    return dslaunch::RunCallBack(call_back);
  }
  if (mode == "resume" && argc == 5 && dslaunch::IsHex(argv[4])) {
    NoteStart();
    return dslaunch::RunResume(argv[3], dslaunch::OwnBuildId(), argv[4]);
  }
  if (mode == "relay" && argc == 4) {
    NoteStart();
    return dslaunch::RunRelay(argv[3], dslaunch::OwnBuildId());
  }
  const dslaunch::InspectOptions inspection = {has_nonce ? argv[3] : "", dslaunch::OwnBuildId()};
  if (mode == "await" && argc == 5 && dslaunch::IsHex(argv[4]))
    return dslaunch::RunAwaitEnd(inspection, argv[4]);
  if (mode == "read" && argc == 4) return dslaunch::RunRead(inspection);
  const std::optional<uint32_t> node = argc == 6 ? ReadNumber(argv[5]) : std::nullopt;
  if (mode == "attach" && node && dslaunch::IsJobId(argv[4]))
    return dslaunch::RunAttach(inspection, argv[4], *node);
  PrintUsage();
  return dslaunch::ToInt(dslaunch::ExitCode::kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  // Most threads allocate only a few small objects, so all threads use one heap.
  mallopt(M_ARENA_MAX, 1);
  // The node's openssl.cnf may name modules, which a static program cannot load, so it is ignored.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  return Run(argc, argv);
}
