// Defines tests of edges. An edge is a function that takes the bytes of one input. The function
// throws if a property is violated, and otherwise returns whether the bytes were accepted. Each
// edge runs with every file of its kept corpus, tests/fuzz/corpus/NAME/, and then with mutations of
// these files. The seed is fixed, so that only changes of the code change the result; with --full
// it is random. The seed is printed, and DSLAUNCH_FUZZ_SEED repeats it. tests/fuzz/run searches for
// new inputs.
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
  int changes;  // number of mutated inputs
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
  // Returns the files of the corpus in an order that does not depend on the disk.
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
