// Reads the status of a job that NCCL's RAS subsystem reports (NCCL 2.24 and later), as JSON or as
// text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "proto/stacks.pb.h"

namespace dslaunch {

inline constexpr size_t kMaxRasBytes = size_t{16} << 20;

// Returns the ranks that have launched fewer operations than other ranks, and the ranks that do not
// answer. Only communicators of `world_size` ranks count, because only their ranks are certainly
// the ranks of the job. Fails with kBadInput if the status is neither JSON nor text of RAS.
Result<pb::RasReport> ReadRasReport(std::string_view status, uint32_t world_size);

// Returns a digest of all numbers of operations in a status as JSON. Two equal digests mean that no
// rank has launched an operation in between. Returns 0 for text, which lists the numbers only if
// they differ, and for JSON without numbers of operations.
uint64_t DigestOfOperations(std::string_view status);

}  // namespace dslaunch
