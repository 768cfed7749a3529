// An edge is a function that takes the bytes of one input, throws where a property is broken, and
// otherwise says whether the bytes were accepted. Each is given every file of its kept corpus,
// tests/fuzz/corpus/NAME/, and then these files changed at random: always in the same way, so that
// a change of the code is judged by itself, but by another seed each time with --full. The seed is
// printed; DSLAUNCH_FUZZ_SEED repeats one. New inputs are looked for by tests/fuzz/run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace dslaunch {

struct Edge {
  const char* name;
  bool (*reads)(const std::string& bytes);
  int changes;  // how many changed inputs it gets
};
inline void PrintTo(const Edge& edge, std::ostream* out) { *out << edge.name; }

inline unsigned FuzzSeed() {
  static const unsigned seed = [] {
    const char* given = std::getenv("DSLAUNCH_FUZZ_SEED");
    const bool full = std::getenv("DSLAUNCH_TEST_FULL") != nullptr;
    const unsigned chosen = given != nullptr ? static_cast<unsigned>(std::atoll(given))
                            : full           ? std::random_device()()
                                             : 1;
    std::printf("DSLAUNCH_FUZZ_SEED=%u\n", chosen);
    return chosen;
  }();
  return seed;
}

class EdgeTest : public testing::TestWithParam<Edge> {
 protected:
  // In an order that does not depend on the disk.
  std::vector<std::filesystem::path> CorpusFiles() const {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path folder =
        std::filesystem::path(DSLAUNCH_FUZZ_CORPUS) / GetParam().name;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

  static std::string ContentOf(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  bool Try(const std::string& input, const std::string& origin) const {
    try {
      return GetParam().reads(input);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << " with " << origin << ": " << testing::PrintToString(input);
      return false;
    }
  }
};

inline std::string NameOfEdge(const testing::TestParamInfo<Edge>& info) { return info.param.name; }

}  // namespace dslaunch
