// Tests ranks with different models. Ranks are forked, because threads that throw at the same
// moment corrupt LibTorch's bookkeeping. So this test must not start threads outside of ranks.
#include "trainer/parallel/same_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "base/exit_code.h"
#include "dslaunch/spawn.h"
#include "trainer/base/train_error.h"

namespace dslaunch::same_model_test {
namespace {

using Parameters = std::vector<NamedTensor>;

Parameters MakeParameters(at::ScalarType dtype, double value) {
  const std::vector<std::vector<int64_t>> shapes = {{3}, {4, 5}, {}, {2, 2, 2}, {1}, {33}};
  Parameters parameters;
  for (const std::vector<int64_t>& shape : shapes) {
    parameters.push_back(
        {"p" + std::to_string(parameters.size()), at::full(shape, value, dtype).requires_grad_()});
  }
  return parameters;
}

// Expects an error that contains `difference` on every rank; no error if `difference` is empty.
void ExpectDifference(int ranks, const std::string& difference,
                      const std::function<Parameters(int rank)>& make) {
  const auto body = [&](int rank) {
    ProcessGroup group = InitProcessGroup();
    std::string told;
    try {
      CheckSameOnAllRanks(group, make(rank));
    } catch (const TrainError& error) {
      if (error.code() != ExitCode::kBadInput) throw;
      told = error.what();
    }
    group.Finish();
    if (difference.empty() ? !told.empty() : told.find(difference) == std::string::npos) {
      throw std::runtime_error("told '" + told + "' instead of '" + difference + "'");
    }
  };
  try {
    Spawn(ranks, body);
  } catch (const TrainError& error) {
    FAIL() << error.what();
  }
}

TEST(CheckSameOnAllRanksTest, AcceptsDifferentValues) {
  ExpectDifference(3, "", [](int) { return MakeParameters(at::kFloat, 1); });
  ExpectDifference(2, "", [](int rank) { return MakeParameters(at::kFloat, rank); });
}

TEST(CheckSameOnAllRanksTest, ReportsDifferingTensorOnEveryRank) {
  ExpectDifference(
      4,
      "the ranks' models differ, first in tensor 2 (ranks 0, 1, 3: p1 Float [4, 5]; rank 2: p1 "
      "Float [5, 4] without gradient); every rank must run the same program with the same "
      "configuration",
      [](int rank) {
        Parameters parameters = MakeParameters(at::kFloat, 1);
        if (rank == 2) parameters[1].tensor = at::ones({5, 4});
        return parameters;
      });
  ExpectDifference(2, "(rank 0: p0 Float [3]; rank 1: p0 Half [3])",
                   [](int rank) { return MakeParameters(rank == 0 ? at::kFloat : at::kHalf, 1); });
  ExpectDifference(2, "in tensor 4 (rank 0: p3 Float [2, 2, 2]; rank 1: other Float [2, 2, 2])",
                   [](int rank) {
                     Parameters parameters = MakeParameters(at::kFloat, 1);
                     if (rank == 1) parameters[3].name = "other";
                     return parameters;
                   });
  ExpectDifference(2, "(rank 0: p0 Float [3] without gradient; rank 1: p0 Float [3])",
                   [](int rank) {
                     Parameters parameters = MakeParameters(at::kFloat, 1);
                     if (rank == 0) parameters[0].tensor.requires_grad_(false);
                     return parameters;
                   });
}

TEST(CheckSameOnAllRanksTest, ReportsDifferentNumberOfTensors) {
  ExpectDifference(2, "in tensor 6 (rank 0: p5 Float [33]; rank 1: no such tensor: there are 5)",
                   [](int rank) {
                     Parameters parameters = MakeParameters(at::kFloat, 1);
                     if (rank == 1) parameters.pop_back();
                     return parameters;
                   });
  ExpectDifference(2, "in tensor 1 (rank 0: no such tensor: there are 0; rank 1: p0 Float [3])",
                   [](int rank) {
                     Parameters parameters = MakeParameters(at::kFloat, 1);
                     if (rank == 0) parameters.clear();
                     return parameters;
                   });
}

}  // namespace
}  // namespace dslaunch::same_model_test
