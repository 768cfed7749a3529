// The division of gradients into messages between the ranks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// Cuts `order`, which has the index of each parameter once, into buckets of at most `bucket_bytes`;
// a larger parameter gets a bucket of its own. `bytes` has an entry for each parameter.
std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& bytes,
                                               const std::vector<size_t>& order,
                                               int64_t bucket_bytes);

}  // namespace dslaunch
