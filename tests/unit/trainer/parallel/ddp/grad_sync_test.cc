#include "trainer/parallel/grad_sync.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "dslaunch/engine.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/config/engine_config.h"
#include "trainer/parallel/ddp/make_grad_sync.h"
#include "trainer/parallel/gradient_scale.h"

namespace dslaunch::grad_sync_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kSmallBucket = 64;  // in bytes; splits the parameters below into several buckets

const std::vector<std::vector<int64_t>> kShapes = {{3}, {4, 5}, {7}, {2, 2, 2}, {}, {33}};

std::vector<NamedTensor> MakeParameters(at::ScalarType dtype, double value) {
  std::vector<NamedTensor> parameters;
  for (const std::vector<int64_t>& shape : kShapes) {
    parameters.push_back(
        {"p" + std::to_string(parameters.size()), at::full(shape, value, dtype).requires_grad_()});
  }
  return parameters;
}

// Returns random numbers that every dtype represents exactly.
at::Tensor Input(const std::vector<int64_t>& shape, std::mt19937& random) {
  at::Tensor input = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < input.numel(); ++i) {
    input.view(-1)[i] = static_cast<double>(static_cast<int>(random() % 33) - 16) / 8;
  }
  return input;
}

// Returns a loss for which the gradient of each parameter is its input. Parameters are used in the
// order of `use`, so their gradients arrive in the opposite order.
at::Tensor Loss(const std::vector<NamedTensor>& parameters, const std::vector<at::Tensor>& inputs,
                const std::vector<size_t>& use) {
  at::Tensor loss = at::zeros({}, parameters[0].tensor.options());
  for (const size_t i : use) {
    loss = loss + (parameters[i].tensor * inputs[i].to(parameters[i].tensor.scalar_type())).sum();
  }
  return loss;
}

void Backward(const at::Tensor& loss) { torch::autograd::backward({loss}, {}); }

void EndPass(GradSync& sync) {
  sync.AfterBackward();
  sync.End();
}

std::vector<size_t> InOrder() {
  std::vector<size_t> order(kShapes.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<at::Tensor> Ones() {
  std::vector<at::Tensor> inputs;
  for (const std::vector<int64_t>& shape : kShapes) inputs.push_back(at::ones(shape));
  return inputs;
}

// The two implementations of GradSync: the reducer for fp32 parameters, buckets for bf16
// parameters.
enum class Kind { kReducer, kBuckets };
at::ScalarType ParameterDtype(Kind kind) {
  return kind == Kind::kReducer ? at::kFloat : at::kBFloat16;
}

void ExpectNoErrors(const std::vector<std::exception_ptr>& errors) {
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(TextOf(errors[rank]), "") << "rank " << rank;
  }
}

struct Cell {
  at::ScalarType parameters;
  GradSyncOptions options;
  int accumulation;
  std::string Name() const {
    return c10::str(parameters, " accumulated in ", options.accumulation_dtype, " sent in ",
                    options.communication_dtype, options.sum ? " sum" : "",
                    options.prescale ? " prescale" : "", " predivide ", options.predivide_factor,
                    options.overlap ? " overlap" : "", " buckets of ", options.bucket_bytes,
                    " accumulation ", accumulation);
  }
};

std::vector<Cell> Table() {
  std::vector<Cell> table;
  const at::ScalarType dtypes[][3] = {
      // The dtypes are those for parameters, accumulation and communication.
      {at::kFloat, at::kFloat, at::kFloat},       {at::kFloat, at::kFloat, at::kBFloat16},
      {at::kBFloat16, at::kBFloat16, at::kFloat}, {at::kBFloat16, at::kFloat, at::kFloat},
      {at::kBFloat16, at::kFloat, at::kBFloat16}, {at::kHalf, at::kHalf, at::kHalf},
      {at::kHalf, at::kFloat, at::kHalf},         {at::kFloat, at::kDouble, at::kFloat},
  };
  for (const auto& [parameters, accumulation_dtype, communication_dtype] : dtypes) {
    for (const auto& [prescale, predivide, sum] :
         {std::tuple(false, 1.0, false), std::tuple(true, 1.0, false),
          std::tuple(false, 2.0, false), std::tuple(false, 1.0, true)}) {
      for (const int accumulation : {1, 3}) {
        for (const bool overlap : {false, true}) {
          for (const int64_t bucket_bytes : {kSmallBucket, int64_t{25} << 20}) {
            table.push_back({parameters,
                             {.accumulation_dtype = accumulation_dtype,
                              .communication_dtype = communication_dtype,
                              .prescale = prescale,
                              .predivide_factor = predivide,
                              .sum = sum,
                              .overlap = overlap,
                              .bucket_bytes = bucket_bytes},
                             accumulation});
          }
        }
      }
    }
  }
  return table;
}

double Epsilon(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 0x1p-8 : dtype == at::kHalf ? 0x1p-11 : 0x1p-24;
}

// Checks one cell: each rank computes all ranks' gradients itself, sums them in double, and expects
// the same result from the exchange. Each rank uses the parameters in its own order.
void CheckCell(const ProcessGroup& group, const Cell& cell, unsigned seed) {
  SCOPED_TRACE("rank " + std::to_string(group.rank()) + " of " +
               std::to_string(group.world_size()) + ": " + cell.Name() + ", seed " +
               std::to_string(seed));
  const int world = group.world_size();
  const std::vector<NamedTensor> parameters = MakeParameters(cell.parameters, 1 + group.rank());
  const auto sync = MakeGradSync(group, parameters, {}, cell.options);
  for (const NamedTensor& parameter : parameters) {
    EXPECT_TRUE((parameter.tensor == 1).all().item<bool>()) << parameter.name << " of rank 0";
  }

  std::mt19937 random(seed);  // draws the same numbers on all ranks
  std::vector<size_t> use = InOrder();
  std::mt19937 own_random(seed + static_cast<unsigned>(group.rank()));
  for (int step = 0; step < 3; ++step) {
    std::vector<at::Tensor> expected;
    for (const auto& shape : kShapes) expected.push_back(at::zeros(shape, at::kDouble));
    for (int micro = 0; micro < cell.accumulation; ++micro) {
      std::vector<at::Tensor> mine;
      for (int rank = 0; rank < world; ++rank) {
        for (size_t i = 0; i < kShapes.size(); ++i) {
          const at::Tensor input = Input(kShapes[i], random);
          expected[i] += input;
          if (rank == group.rank()) mine.push_back(input);
        }
      }
      std::shuffle(use.begin(), use.end(), own_random);
      const bool last = micro + 1 == cell.accumulation;
      sync->Begin(last);
      const at::Tensor loss = Loss(parameters, mine, use);
      sync->BeforeBackward(last);
      Backward(loss);
      EndPass(*sync);
    }
    const std::vector<at::Tensor> gradients = sync->Gradients();
    EXPECT_EQ(gradients.size(), kShapes.size());
    const double factor = cell.options.sum ? 1.0 : 1.0 / world;
    const double tolerance =
        (Epsilon(cell.options.accumulation_dtype) + Epsilon(cell.options.communication_dtype)) * 2 *
        2.0 * world * cell.accumulation * factor;
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_EQ(gradients[i].scalar_type(), cell.options.accumulation_dtype);
      EXPECT_EQ(gradients[i].sizes(), at::IntArrayRef(kShapes[i]));
      const double error =
          (gradients[i].to(at::kDouble) - expected[i] * factor).abs().max().item<double>();
      EXPECT_LE(error, tolerance) << "step " << step << ", p" << i;
    }
    sync->Clear();
  }
}

class WorldTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, WorldTest, testing::Values(1, 2, 4));

TEST_P(WorldTest, GradientsMatchSumInDouble) {
  const unsigned seed = std::random_device()();
  ExpectNoErrors(RunRanks(GetParam(), [&](const ProcessGroup& group) {
    const std::vector<Cell> table = Table();
    // Four ranks are slow on two cores, so they run a third of the table, in which each value still
    // meets each other value.
    for (size_t i = 0; i<table.size(); i += group.world_size()> 2 ? 3 : 1) {
      CheckCell(group, table[i], seed);
      // After a failure all ranks stop, because ranks that continued alone would wait for the
      // others.
      std::vector<double> failures = {testing::Test::HasFailure() ? 1.0 : 0.0};
      group.AllReduceSum(failures);
      if (failures[0] > 0) return;
    }
  }));
}

TEST(GradientScaleTest, MatchesDeepSpeed) {
  const auto scale = [](const GradSyncOptions& options) {
    const GradientScale result = ScaleOf(options, 8);
    return std::pair(result.before, result.after);
  };
  EXPECT_EQ(scale({}), std::pair(1.0, 1.0 / 8));
  EXPECT_EQ(scale({.predivide_factor = 2}), std::pair(1.0 / 2, 2.0 / 8));
  EXPECT_EQ(scale({.prescale = true, .predivide_factor = 2}), std::pair(1.0 / 8, 1.0));
  EXPECT_EQ(scale({.predivide_factor = 2, .sum = true}), std::pair(1.0, 1.0));
}

// Sums must not be kept in 16 bit, because 256 + 1 is 256 in bf16, and 65504 + 65504 is infinite in
// fp16.
TEST(BucketSyncTest, KeepsSmallGradientsBesideLargeOnes) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = MakeParameters(at::kBFloat16, 1);
    const auto sync = MakeGradSync(group, parameters, {}, {.sum = true});
    for (int micro = 0; micro < 4; ++micro) {
      const bool last = micro == 3;
      sync->Begin(last);
      const at::Tensor loss = Loss(parameters, Ones(), InOrder()) * (micro == 0 ? 256 : 1);
      sync->BeforeBackward(last);
      Backward(loss);
      EndPass(*sync);
      for (const NamedTensor& parameter : parameters) {
        EXPECT_FALSE(parameter.tensor.grad().defined()) << "the bf16 gradient takes memory";
      }
    }
    for (const at::Tensor& gradient : sync->Gradients()) {
      EXPECT_TRUE((gradient == 2 * 259).all().item<bool>()) << gradient;
    }
  }));
}

// As in amp O3 with keep_batchnorm_fp32, the norms' parameters are fp32 in an fp16 model.
TEST(BucketSyncTest, AccumulatesInWiderDtypeOfParameter) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = {
        {"fc", at::ones({3}, at::kHalf).requires_grad_()},
        {"norm", at::ones({5}, at::kFloat).requires_grad_()}};
    const auto sync = MakeGradSync(group, parameters, {},
                                   {.accumulation_dtype = at::kHalf,
                                    .communication_dtype = at::kHalf,
                                    .keeps_parameter_dtype = true});
    // In fp16, 2^-14 is lost when it is added to 1.
    for (const double gradient : {1.0, 0x1p-14}) {
      const bool last = gradient != 1;
      sync->Begin(last);
      sync->BeforeBackward(last);
      Backward((parameters[0].tensor * gradient).sum().to(at::kFloat) +
               (parameters[1].tensor * gradient).sum());
      EndPass(*sync);
    }
    const std::vector<at::Tensor> gradients = sync->Gradients();
    EXPECT_EQ(gradients[0].scalar_type(), at::kHalf);
    EXPECT_EQ(gradients[1].scalar_type(), at::kFloat);
    EXPECT_EQ(gradients[1][4].item<double>(), 1 + 0x1p-14);
    EXPECT_EQ(sync->gradient_bytes(), 3 * 2 + 5 * 4);
    EXPECT_EQ(sync->bucket_bytes(), 0) << "they travel as they add up";
  }));
}

TEST(BucketSyncTest, PredividingKeeps16BitSumInRange) {
  for (const double predivide : {1.0, 4.0}) {
    ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
      const std::vector<NamedTensor> parameters = MakeParameters(at::kHalf, 1);
      const auto sync = MakeGradSync(
          group, parameters, {}, {.communication_dtype = at::kHalf, .predivide_factor = predivide});
      sync->Begin(true);
      const at::Tensor loss = Loss(parameters, Ones(), InOrder()) * 49152;
      sync->BeforeBackward(true);
      Backward(loss);
      EndPass(*sync);
      const double value = sync->Gradients()[0].max().item<double>();
      if (predivide == 1) {
        EXPECT_TRUE(std::isinf(value)) << value;
      } else {
        EXPECT_EQ(value, 49152);
      }
    }));
  }
}

// Gradients may arrive in any backward pass of the batch or between passes; no pass is marked as
// the last, and some parameters get no gradient.
TEST(BucketSyncTest, ReducesGradientsOfBatchAtItsEnd) {
  for (const int ranks : {1, 2, 4}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const at::ScalarType communication : {at::kFloat, at::kBFloat16}) {
        ExpectNoErrors(RunRanks(ranks, [&](const ProcessGroup& group) {
          const std::vector<NamedTensor> parameters = MakeParameters(dtype, 1);
          const auto sync = MakeGradSync(group, parameters, {},
                                         {.communication_dtype = communication,
                                          .sum = true,
                                          .bucket_bytes = kSmallBucket,
                                          .batches = true});
          for (int step = 0; step < 3; ++step) {
            sync->Begin(true);
            for (const std::vector<size_t>& use :
                 {std::vector<size_t>{0, 1, 3}, {3, 4}, {1, 0, 4, 3}}) {
              sync->BeforeBackward(false);
              Backward(Loss(parameters, Ones(), use) * (group.rank() + 1));
              sync->AfterBackward();
            }
            at::Tensor late = parameters[2].tensor;
            late.mutable_grad() = at::ones_like(late) * (group.rank() + 1);
            (*torch::autograd::impl::post_acc_grad_hooks(late))(late);
            EXPECT_FALSE(late.grad().defined());
            sync->End();
            const std::vector<at::Tensor> gradients = sync->Gradients();
            const std::vector<double> times = {2, 2, 1, 3, 2};
            const double sum = ranks * (ranks + 1) / 2.0;
            for (size_t i = 0; i < times.size(); ++i) {
              EXPECT_TRUE((gradients[i] == times[i] * sum).all().item<bool>())
                  << i << ": " << gradients[i];
            }
            EXPECT_FALSE(gradients[5].defined()) << "in none of them";
            sync->Clear();
          }
        }));
      }
    }
  }
}

class KindTest : public testing::TestWithParam<Kind> {
 protected:
  std::vector<NamedTensor> Parameters() const {
    return MakeParameters(ParameterDtype(GetParam()), 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, KindTest, testing::Values(Kind::kReducer, Kind::kBuckets),
                         [](const testing::TestParamInfo<Kind>& kind) {
                           return kind.param == Kind::kReducer ? "Reducer" : "Buckets";
                         });

// Buffers are copied after each step, so that an evaluation, too, uses the same values on all
// ranks.
TEST_P(KindTest, CopiesBuffersFromRank0) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    at::Tensor mean = at::full({3}, group.rank() + 1.5);
    at::Tensor batches = at::full({}, group.rank() + 7, at::kLong);
    const auto sync = MakeGradSync(group, parameters, {mean, batches}, {});
    EXPECT_TRUE((mean == 1.5).all().item<bool>());
    EXPECT_EQ(batches.item<int64_t>(), 7);
    for (int step = 1; step < 4; ++step) {
      for (const bool last : {false, true}) {
        sync->Begin(last);
        mean += group.rank() + 1;
        batches += group.rank() + 1;
        const at::Tensor loss = Loss(parameters, Ones(), InOrder());
        sync->BeforeBackward(last);
        Backward(loss);
        EndPass(*sync);
      }
      sync->Clear();
      EXPECT_TRUE((mean == 1.5 + 2 * step).all().item<bool>()) << mean;
      EXPECT_EQ(batches.item<int64_t>(), 7 + 2 * step);
    }
  }));
}

TEST_P(KindTest, RejectsSecondBackwardPassNamingParameter) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    const auto sync = MakeGradSync(group, parameters, {}, {});
    for (int step = 0; step < 2; ++step) {
      sync->Begin(true);
      const at::Tensor loss = Loss(parameters, Ones(), InOrder());
      const at::Tensor again = Loss(parameters, Ones(), InOrder());
      sync->BeforeBackward(true);
      Backward(loss);
      EndPass(*sync);
      if (step == 0) {
        sync->Clear();
        continue;
      }
      try {
        Backward(again);
        ADD_FAILURE() << "accepted";
      } catch (const TrainError& error) {
        EXPECT_EQ(error.code(), ExitCode::kBadInput);
        EXPECT_THAT(error.what(), HasSubstr("the parameter p5 got a second gradient"));
      }
    }
  }));
}

// Rank 1's last micro-batch does not use p2, so rank 0 waits for rank 1's gradient of p2 until rank
// 1 exits.
TEST_P(KindTest, GradientIsUndefinedOnRankThatIgnoresParameter) {
  const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    const auto sync = MakeGradSync(group, parameters, {}, {.bucket_bytes = kSmallBucket});
    for (int step = 0; step < 2; ++step) {
      for (const bool last : {false, true}) {
        std::vector<size_t> use = InOrder();
        if (step == 1 && last && group.rank() == 1) use.erase(use.begin() + 2);
        sync->Begin(last);
        const at::Tensor loss = Loss(parameters, Ones(), use);
        sync->BeforeBackward(last);
        Backward(loss);
        EndPass(*sync);
      }
      const std::vector<at::Tensor> gradients = sync->Gradients();
      for (size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_EQ(gradients[i].defined(), step == 0 || i != 2) << i;
        if (!gradients[i].defined()) throw TrainError(ExitCode::kBadInput, "p2 got no gradient");
      }
      sync->Clear();
    }
  });
  EXPECT_EQ(TextOf(errors[1]), "p2 got no gradient");
  EXPECT_EQ(ClassifyCommFailure(TextOf(errors[0])), CommFailure::kPeerLost) << TextOf(errors[0]);
}

TEST_P(KindTest, CountsUnusedParameterWithZerosOnRequest) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    const auto sync =
        MakeGradSync(group, parameters, {}, {.bucket_bytes = kSmallBucket, .ignore_unused = true});
    for (int step = 0; step < 4; ++step) {
      for (const bool last : {false, true}) {
        std::vector<size_t> use = {0, 1, 2, 3, 4};  // p5 is used by no rank
        if (last && step % 2 == 0 && group.rank() == 1) use = {0, 1, 4};
        sync->Begin(last);
        const at::Tensor loss = Loss(parameters, Ones(), use);
        sync->BeforeBackward(last);
        Backward(loss);
        EndPass(*sync);
      }
      const std::vector<at::Tensor> gradients = sync->Gradients();
      for (size_t i = 0; i < gradients.size(); ++i) {
        const bool ignored = step % 2 == 0 && (i == 2 || i == 3);
        const double wanted = i == 5 ? 0 : ignored ? 1.5 : 2;
        EXPECT_TRUE((gradients[i] == wanted).all().item<bool>())
            << "step " << step << ", " << i << ": " << gradients[i];
      }
      sync->Clear();
    }
  }));
}

// Makes backward passes throw at the gradient of one parameter, while armed.
class Thrower {
 public:
  explicit Thrower(at::Tensor parameter) {
    parameter.register_hook([this](const at::Tensor&) {
      if (armed_) throw std::runtime_error("no memory left");
    });
  }
  void Throw(const at::Tensor& loss) {
    armed_ = true;
    EXPECT_THROW(Backward(loss), std::runtime_error);
    armed_ = false;
  }

 private:
  bool armed_ = false;
};

// Each rank has already sent different buckets when its backward pass throws.
TEST_P(KindTest, GivesUpStepWhileGradientsAreSent) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    Thrower thrower(parameters[group.rank() == 0 ? 2 : 1].tensor);
    const auto sync = MakeGradSync(group, parameters, {}, {.bucket_bytes = kSmallBucket});
    for (int step = 0; step < 4; ++step) {
      if (step > 0) {
        sync->Begin(true);
        const at::Tensor loss = Loss(parameters, Ones(), InOrder()) * 5;
        sync->BeforeBackward(true);
        thrower.Throw(loss);
        sync->GiveUp();
      }
      sync->Begin(true);
      const at::Tensor loss = Loss(parameters, Ones(), InOrder()) * (group.rank() + 1);
      sync->BeforeBackward(true);
      Backward(loss);
      EndPass(*sync);
      for (const at::Tensor& gradient : sync->Gradients()) {
        EXPECT_TRUE((gradient == 1.5).all().item<bool>()) << "step " << step << ": " << gradient;
      }
      sync->Clear();
    }
  }));
}

TEST_P(KindTest, OtherRanksSeeNanWhenOneRankGivesUp) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    Thrower thrower(parameters[2].tensor);
    const auto sync = MakeGradSync(group, parameters, {}, {.bucket_bytes = kSmallBucket});
    for (int step = 0; step < 2; ++step) {
      sync->Begin(true);
      const at::Tensor loss = Loss(parameters, Ones(), InOrder());
      sync->BeforeBackward(true);
      if (step == 1 && group.rank() == 0) {
        thrower.Throw(loss);
        sync->GiveUp();
        return;
      }
      Backward(loss);
      EndPass(*sync);
      EXPECT_EQ(sync->Gradients()[0].isnan().any().item<bool>(), step == 1);
      sync->Clear();
    }
  }));
}

TEST_P(KindTest, RankRetriesAloneBeforeItHasSentAnything) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    const std::vector<NamedTensor> parameters = Parameters();
    Thrower thrower(parameters[5].tensor);
    const auto sync = MakeGradSync(group, parameters, {}, {.bucket_bytes = kSmallBucket});
    for (int step = 0; step < 3; ++step) {
      if (step > 0 && group.rank() == 0) {
        sync->Begin(true);
        const at::Tensor loss = Loss(parameters, Ones(), InOrder()) * 5;
        sync->BeforeBackward(true);
        thrower.Throw(loss);
        sync->GiveUp();
      }
      sync->Begin(true);
      const at::Tensor loss = Loss(parameters, Ones(), InOrder()) * (group.rank() + 1);
      sync->BeforeBackward(true);
      Backward(loss);
      EndPass(*sync);
      for (const at::Tensor& gradient : sync->Gradients()) {
        EXPECT_TRUE((gradient == 1.5).all().item<bool>()) << "step " << step << ": " << gradient;
      }
      sync->Clear();
    }
  }));
}

struct Chain : torch::nn::Module {
  explicit Chain(bool use_all) : all(use_all) {
    first = register_parameter("first", at::ones({4}));
    second = register_parameter("second", at::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) { return all ? x * first * second : x * first; }
  bool all;
  at::Tensor first, second;
};

// In the engine too, the rank whose model does not use a parameter reports the parameter's name.
TEST(EngineOnRanksTest, RankWithUnusedParameterNamesIt) {
  const auto errors = RunRanks(2, [](const ProcessGroup& group) {
    EngineConfig config;
    config.batch = {2, 1, 1};
    config.optimizer.emplace();
    config.zero.ignore_unused_parameters = false;
    auto engine = Initialize(config, std::make_shared<Chain>(/*use_all=*/group.rank() == 0), group);
    engine.SetTrain();
    engine.Backward(engine.Forward(at::ones({4})).sum());
    engine.Step();
  });
  EXPECT_THAT(TextOf(errors[1]), HasSubstr("the parameter second got no gradient"));
  EXPECT_EQ(ClassifyCommFailure(TextOf(errors[0])), CommFailure::kPeerLost) << TextOf(errors[0]);
}

TEST_P(KindTest, BytesCountBucketsAndAccumulators) {
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    int64_t elements = 0;
    for (const NamedTensor& parameter : Parameters()) elements += parameter.tensor.numel();
    const std::vector<NamedTensor> parameters = Parameters();
    {
      const auto sync = MakeGradSync(group, parameters, {}, {});
      EXPECT_EQ(sync->gradient_bytes(), 4 * elements);
      EXPECT_EQ(sync->bucket_bytes(), 0);
      sync->Begin(false);
      sync->BeforeBackward(false);
      Backward(Loss(parameters, Ones(), InOrder()));
      EndPass(*sync);
      EXPECT_EQ(sync->bucket_bytes(), GetParam() == Kind::kReducer ? 4 * elements : 0)
          << "the reducer's gradients accumulate outside of its buckets";
      sync->Clear();
    }
    const auto sync = MakeGradSync(group, parameters, {}, {.communication_dtype = at::kBFloat16});
    EXPECT_EQ(sync->gradient_bytes(), 4 * elements);
    EXPECT_EQ(sync->bucket_bytes(), 2 * elements);
  }));
}

// Names of the events in this thread, in order; null if they are not recorded.
thread_local std::vector<std::string>* events = nullptr;

// The parameters p0 to p3 form a chain, so p3's gradient arrives first and p0's last.
TEST_P(KindTest, SendsMessagesDuringBackwardPass) {
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) {
        if (events != nullptr && std::string_view(function.name()) == "c10d::allreduce_") {
          events->push_back("send");
        }
        return std::unique_ptr<at::ObserverContext>();
      }).scopes({at::RecordScope::FUNCTION}));
  for (const bool overlap : {false, true}) {
    ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
      std::vector<NamedTensor> parameters;
      for (int i = 0; i < 4; ++i) {
        parameters.push_back(
            {"p" + std::to_string(i), at::ones({8}, ParameterDtype(GetParam())).requires_grad_()});
        parameters.back().tensor.register_hook([](const at::Tensor&) {
          if (events != nullptr) events->push_back("gradient");
        });
      }
      const auto sync =
          MakeGradSync(group, parameters, {}, {.overlap = overlap, .bucket_bytes = 32});
      for (int step = 0; step < 2; ++step) {
        sync->Begin(true);
        at::Tensor x = at::ones({8}, ParameterDtype(GetParam()));
        for (const NamedTensor& parameter : parameters) x = x * parameter.tensor;
        sync->BeforeBackward(true);
        std::vector<std::string> seen;
        events = &seen;
        Backward(x.sum());
        EndPass(*sync);
        events = nullptr;
        sync->Clear();
        // The reducer has one bucket until the order of gradients is known.
        if (step == 0) continue;
        const std::vector<std::string> wanted =
            overlap ? std::vector<std::string>{"gradient", "send", "gradient", "send",
                                               "gradient", "send", "gradient", "send"}
            : GetParam() == Kind::kReducer
                ? std::vector<std::string>{"gradient", "gradient", "gradient", "gradient", "send"}
                : std::vector<std::string>{"gradient", "gradient", "gradient", "gradient",
                                           "send",     "send",     "send",     "send"};
        EXPECT_EQ(seen, wanted) << "overlap " << overlap;
      }
    }));
  }
  at::removeCallback(handle);
}

TEST(MakeGradSyncTest, RejectsDifferentModels) {
  for (const std::exception_ptr& error : RunRanks(2, [](const ProcessGroup& group) {
         at::Tensor buffer = at::zeros({group.rank() + 1});
         MakeGradSync(group, MakeParameters(at::kFloat, 1), {buffer}, {});
       })) {
    EXPECT_THAT(TextOf(error), HasSubstr("(rank 0: buffer 0 Float [1] without gradient; rank 1: "
                                         "buffer 0 Float [2] without gradient)"));
  }
}

TEST(MakeGradSyncTest, RejectsModelWithoutParameters) {
  EXPECT_THAT(
      TextOf(RunRanks(1, [](const ProcessGroup& group) { MakeGradSync(group, {}, {}, {}); })[0]),
      HasSubstr("no parameter that requires a gradient"));
}

}  // namespace
}  // namespace dslaunch::grad_sync_test
