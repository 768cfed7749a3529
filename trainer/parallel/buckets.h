// Which gradients travel between the ranks in one message. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// `bytes` has an entry for each parameter, `order` each of their indices once. Cuts `order` into
// buckets of at most `bucket_bytes`; a larger parameter gets one of its own.
std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& bytes,
                                               const std::vector<size_t>& order,
                                               int64_t bucket_bytes);

}  // namespace dslaunch
