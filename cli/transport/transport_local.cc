#include "cli/transport/transport_local.h"

#include <utility>
#include <vector>

#include "cli/transport/child_link.h"
#include "cli/transport/child_process.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLastWordsWait{100};

}  // namespace

Result<std::unique_ptr<NodeLink>> LocalTransport::Connect(const NodeTarget& target,
                                                          Deadline deadline) {
  const std::string nonce = MakeNonce();
  std::vector<std::string> argv = AgentArguments(role_, nonce);
  argv.insert(argv.begin(), agent_.path);
  Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Start(argv, ChildProcess::Fate::kOnItsOwn, role_.command_fd);
  if (!child) {
    return Error{ExitCode::kUnavailable, "node '" + target.name +
                                             "': cannot start the local agent: " + agent_.path +
                                             ": " + child.error().message};
  }
  auto link = std::make_unique<ChildLink>(*std::move(child), "127.0.0.1");
  HelloScanner scanner(nonce);
  if (const Result<void> hello = link->AwaitHello(scanner, deadline); !hello) {
    // The agent may be about to write the cause to stderr, so wait for its end.
    link->child().WaitEnd(Deadline::After(kLastWordsWait));
    std::string message = "node '" + target.name + "': the local agent " + hello.error().message;
    const std::string printed = OneLine(link->StderrTail() + " " + scanner.Skipped(), 512);
    if (!printed.empty()) message += "; it printed: " + printed;
    return Error{hello.error().code,
                 message + "; is dslaunch-agent of the same build as dslaunch?"};
  }
  return std::unique_ptr<NodeLink>(std::move(link));
}

}  // namespace dslaunch
