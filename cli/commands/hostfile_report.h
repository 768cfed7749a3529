// What is made of nodes that were asked what they have: a hostfile, or a table about one. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// A node and what it answered.
struct AskedHost {
  Host host;
  std::optional<Error> failure;  // then nothing below is known
  int gpus = 0;                  // that a job there sees
  std::string gpu_name;          // of the first one
  int cores = 0;
  uint64_t memory_bytes = 0;
};

// The hostfile in which every node has as many slots as GPUs, or as cores where it has none. None
// of `hosts` has failed.
std::string WriteHostfileText(const std::vector<AskedHost>& hosts, bool yaml);

// Why a job that takes all slots of this node would fail; empty: it would not.
std::string SlotProblem(const AskedHost& host);

std::string HostTable(const std::vector<AskedHost>& hosts);
std::string HostsJson(const std::string& file, const std::vector<AskedHost>& hosts);

}  // namespace dslaunch
