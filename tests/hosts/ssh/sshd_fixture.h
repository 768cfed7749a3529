// A real sshd on the loopback interface with its own keys, configuration and home folder.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/transport.h"
#include "tests/support/processes.h"

namespace dslaunch {

// Runs a program to its end. Returns its exit code, 128 + signal, or -1 if it could not start.
int RunProgram(const std::vector<std::string>& argv);

void WriteFile(const std::filesystem::path& path, const std::string& text);

// Each test gets a fresh folder, and so a fresh home on the "node", and its own sshd. Outside the
// folder only /run/sshd is touched, which sshd requires if it runs as root.
class SshdTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts sshd with these lines added to its configuration, and NAME=VALUE words added to the
  // environment of the programs that it runs. The client knows its host key.
  void StartSshd(const std::string& extra_config = "", const std::string& environment = "");
  void StopSshd();

  // The client's target: by alias through ssh_config.
  NodeTarget Target() const { return {"node1", "node1-alias", 0, ""}; }
  SshOptions Options() const { return {(folder_ / "ssh_config").string()}; }

  std::string HostKeyLine() const;  // "type base64" of sshd's public key
  std::string KnownHostsName() const { return "[127.0.0.1]:" + std::to_string(port_); }
  std::filesystem::path home() const { return folder_ / "home"; }
  std::filesystem::path known_hosts() const { return folder_ / "known_hosts"; }

  std::filesystem::path folder_;
  int port_ = 0;
  pid_t sshd_pid_ = -1;
};

// Returns a TCP port of the loopback interface on which nothing listens at the moment.
int FreePort();

}  // namespace dslaunch
