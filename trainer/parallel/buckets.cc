#include "trainer/parallel/buckets.h"

namespace dslaunch {

std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& bytes,
                                               const std::vector<size_t>& order,
                                               int64_t bucket_bytes) {
  std::vector<std::vector<size_t>> buckets;
  int64_t room = 0;  // number of bytes that still fit into the last bucket
  for (const size_t parameter : order) {
    if (buckets.empty() || bytes[parameter] > room) {
      buckets.emplace_back();
      room = bucket_bytes;
    }
    buckets.back().push_back(parameter);
    room -= bytes[parameter];
  }
  return buckets;
}

}  // namespace dslaunch
