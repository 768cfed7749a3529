// Reads lines "num_samples world_size rank shuffle seed drop_last epoch"; answers each with the
// indices on one line.
#include <iostream>

#include "trainer/data/sampler.h"

int main() {
  dslaunch::DistributedSampler::Options options;
  int64_t epoch = 0;
  while (std::cin >> options.num_samples >> options.world_size >> options.rank >> options.shuffle >>
         options.seed >> options.drop_last >> epoch) {
    dslaunch::DistributedSampler sampler(options);
    sampler.SetEpoch(epoch);
    for (const int64_t index : sampler.Indices()) std::cout << index << ' ';
    std::cout << '\n';
  }
}
