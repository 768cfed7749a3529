// Tests every function that DSLAUNCH_EDGES_DEF lists, one test each.
#include "tests/fuzz/edge_test.h"

#include DSLAUNCH_EDGES_H

namespace dslaunch {
namespace {

TEST_P(EdgeTest, SurvivesCorpusAndMutations) {
  std::vector<std::string> corpus;
  int accepted = 0;
  for (const std::filesystem::path& file : CorpusFiles()) {
    corpus.push_back(ContentOf(file));
    accepted += Try(corpus.back(), file.filename().string()) ? 1 : 0;
  }
  ASSERT_GT(accepted, 0) << "no file of the corpus is accepted";
  Mutator mutator(FuzzSeed());
  for (int i = 0; i < GetParam().changes && !HasFailure(); ++i)
    Try(mutator.Changed(corpus[mutator.Below(corpus.size())]), "a changed input");
}

#define EDGE(function, changes) {#function, function, changes},
const Edge kEdges[] = {
#include DSLAUNCH_EDGES_DEF
};
#undef EDGE

INSTANTIATE_TEST_SUITE_P(Edges, EdgeTest, testing::ValuesIn(kEdges), NameOfEdge);

}  // namespace
}  // namespace dslaunch
