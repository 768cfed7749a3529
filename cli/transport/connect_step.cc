#include "cli/transport/connect_step.h"

namespace dslaunch {

const char* StepName(ConnectStep step) {
  switch (step) {
    case ConnectStep::kResolve:
      return "resolve";
    case ConnectStep::kConnect:
      return "connect";
    case ConnectStep::kHandshake:
      return "handshake";
    case ConnectStep::kHostKey:
      return "host key";
    case ConnectStep::kLogin:
      return "login";
    case ConnectStep::kStartAgent:
      return "start agent";
    case ConnectStep::kCopyAgent:
      return "copy agent";
    case ConnectStep::kRunning:
      break;
  }
  return "running";
}

std::string TimedOutAt(ConnectStep step) {
  switch (step) {
    case ConnectStep::kResolve:
      return "its host name was not resolved in time; check DNS";
    case ConnectStep::kConnect:
      return "the connection was not made in time; check that the node is up and that no firewall "
             "drops the port";
    case ConnectStep::kHandshake:
      return "it accepted the connection but did not complete the SSH handshake in time; check "
             "that an sshd listens on this port and that the node is not overloaded";
    case ConnectStep::kHostKey:
    case ConnectStep::kLogin:
      return "the login did not finish in time; check that ssh-agent answers (ssh-add -l) and that "
             "the node is not overloaded";
    case ConnectStep::kStartAgent:
      return "the agent did not start in time; check that the account's shell starts quickly there";
    case ConnectStep::kCopyAgent:
      return "the copy of the agent made no progress for 30 s; check the network and the home "
             "folder's disk there";
    case ConnectStep::kRunning:
      break;
  }
  return "it did not answer in time";
}

}  // namespace dslaunch
