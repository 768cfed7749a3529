// Divides gradients into buckets, each of which is one message between the ranks. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// Divides the parameters in `order`, which contains each parameter's index once, into buckets of at
// most `bucket_bytes` bytes. A larger parameter gets a separate bucket. `bytes` has the size of
// each parameter.
std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& bytes,
                                               const std::vector<size_t>& order,
                                               int64_t bucket_bytes);

}  // namespace dslaunch
