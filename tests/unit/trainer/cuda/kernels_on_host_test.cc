// Runs the kernels of trainer/cuda on the CPU and compares them with LibTorch's operators.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/cuda/libtorch_kernels.h"
#include "tests/support/random_seed.h"
#include "tests/unit/trainer/cuda/gpu_on_host.h"
#include "trainer/cuda/kernel_calls.h"

namespace dslaunch {
namespace gpu_on_host {

// The order of the sources matters.
// clang-format off
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wshadow"
#pragma clang diagnostic ignored "-Wsign-compare"
#include "trainer/cuda/common.cu"
namespace rows {
#include "trainer/cuda/row_kernels.cu"
#undef DSLAUNCH_KERNELS
}  // namespace rows
namespace decoder {
#include "trainer/cuda/decoder_kernels.cu"
}  // namespace decoder
namespace bfloat_264 {
#define DSLAUNCH_ELEMENT Bfloat
#define DSLAUNCH_COLUMNS 264
#define DSLAUNCH_WARPS 1
#include "trainer/cuda/norm_rows.cu"
#include "trainer/cuda/layer_norm_kernels.cu"
#include "trainer/cuda/rms_norm_kernels.cu"
#undef DSLAUNCH_ELEMENT
#undef DSLAUNCH_COLUMNS
#undef DSLAUNCH_WARPS
}  // namespace bfloat_264
namespace float_1028 {
#define DSLAUNCH_ELEMENT float
#define DSLAUNCH_COLUMNS 1028
#define DSLAUNCH_WARPS 4
#include "trainer/cuda/norm_rows.cu"
#include "trainer/cuda/rms_norm_kernels.cu"
#undef DSLAUNCH_ELEMENT
#undef DSLAUNCH_COLUMNS
#undef DSLAUNCH_WARPS
}  // namespace float_1028
namespace half_8192 {
#define DSLAUNCH_ELEMENT Half
#define DSLAUNCH_COLUMNS 8192
#define DSLAUNCH_WARPS 8
#include "trainer/cuda/norm_rows.cu"
#include "trainer/cuda/rms_norm_kernels.cu"
#undef DSLAUNCH_ELEMENT
#undef DSLAUNCH_COLUMNS
#undef DSLAUNCH_WARPS
}  // namespace half_8192
#pragma clang diagnostic pop
// clang-format on

// Calls `kernel` with the arguments to which the pointers in `arguments` point.
template <typename... Parameters, size_t... kIndices>
void CallWith(void (*kernel)(Parameters...), void** arguments, std::index_sequence<kIndices...>) {
  kernel(*static_cast<Parameters*>(arguments[kIndices])...);
}

// Runs a kernel once for each thread, with the arguments at `arguments`.
template <typename... Parameters>
void RunKernel(void (*kernel)(Parameters...), KernelGrid blocks, KernelGrid threads,
               void** arguments) {
  Run({blocks.x, blocks.y}, {threads.x, threads.y},
      [&] { CallWith(kernel, arguments, std::index_sequence_for<Parameters...>()); });
}

}  // namespace gpu_on_host

namespace {

namespace host = gpu_on_host;

class HostKernels : public KernelCalls {
 public:
  // Uses so few multiprocessors that a block processes several rows.
  HostKernels() : KernelCalls(/*processors=*/2) {}

 protected:
  void Launch(const KernelVersion& kernel, KernelGrid blocks, KernelGrid threads,
              void** arguments) override {
    const std::string name = kernel.name;
    const auto run = [&](auto* function) {
      host::RunKernel(function, blocks, threads, arguments);
      was_run = true;
    };
    const auto run_of_type = [&](const char* of, auto* of_float, auto* of_half, auto* of_bfloat) {
      if (name != of) return;
      if (kernel.type == at::kFloat) run(of_float);
      if (kernel.type == at::kHalf) run(of_half);
      if (kernel.type == at::kBFloat16) run(of_bfloat);
    };
    const auto run_norm = [&](const char* of, at::ScalarType type, int64_t columns, int64_t warps,
                              auto* function) {
      if (name == of && kernel.type == type && kernel.columns == columns) {
        ASSERT_EQ(kernel.row_warps, warps);
        run(function);
      }
    };
    was_run = false;
#define OF_ALL_TYPES(space, name)                                         \
  run_of_type(#name, host::space::name##_float, host::space::name##_half, \
              host::space::name##_bfloat)
    OF_ALL_TYPES(rows, cross_entropy);
    OF_ALL_TYPES(rows, cross_entropy_gradient);
    OF_ALL_TYPES(rows, sum_rows);
    OF_ALL_TYPES(rows, finish);
    OF_ALL_TYPES(rows, gelu);
    OF_ALL_TYPES(rows, gelu_gradient);
    OF_ALL_TYPES(rows, join_thirds);
    OF_ALL_TYPES(decoder, rotate);
    OF_ALL_TYPES(decoder, swiglu);
    OF_ALL_TYPES(decoder, swiglu_gradients);
    run_norm("layer_norm", at::kBFloat16, 264, 1, host::bfloat_264::layer_norm);
    run_norm("layer_norm_gradients", at::kBFloat16, 264, 1, host::bfloat_264::layer_norm_gradients);
    run_norm("rms_norm", at::kBFloat16, 264, 1, host::bfloat_264::rms_norm);
    run_norm("rms_norm_gradients", at::kBFloat16, 264, 1, host::bfloat_264::rms_norm_gradients);
    run_norm("rms_norm", at::kFloat, 1028, 4, host::float_1028::rms_norm);
    run_norm("rms_norm_gradients", at::kFloat, 1028, 4, host::float_1028::rms_norm_gradients);
    run_norm("rms_norm", at::kHalf, 8192, 8, host::half_8192::rms_norm);
    run_norm("rms_norm_gradients", at::kHalf, 8192, 8, host::half_8192::rms_norm_gradients);
    ASSERT_TRUE(was_run) << name << " " << kernel.type << " " << kernel.columns;
  }

 private:
  bool was_run = false;
};

using at::Tensor;

const at::ScalarType kTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};

// Expects `found` to equal `wanted` within the precision of its dtype. `wanted` was computed in
// fp32 from the same inputs.
void ExpectClose(const Tensor& found, const Tensor& wanted, const std::string& what) {
  const at::ScalarType type = found.scalar_type();
  const double within = type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-3 : 8e-3;
  const Tensor difference = (found.to(at::kDouble) - wanted.to(at::kDouble)).nan_to_num(0);
  EXPECT_TRUE(found.isnan().equal(wanted.isnan())) << what << " " << type;
  EXPECT_LE(difference.norm().item<double>(),
            within * (1e-6 + wanted.to(at::kDouble).nan_to_num(0).norm().item<double>()))
      << what << " " << type << " " << wanted.sizes();
}

class KernelsOnHostTest : public testing::Test {
 protected:
  void SetUp() override {
    const uint64_t seed = TestSeed();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    at::manual_seed(seed);
  }

  HostKernels ours_;
  const std::unique_ptr<FusedKernels> theirs_ = MakeLibtorchKernels();
};

Tensor Wide(const Tensor& x) { return x.to(at::kFloat); }

TEST_F(KernelsOnHostTest, CrossEntropyMatchesLibtorch) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t columns : {1, 7, 24, 4500}) {
      const Tensor logits = (at::randn({3, columns}) * 4).to(type);
      Tensor targets = at::randint(columns, {3}, at::kLong);
      targets[1] = -100;
      const Tensor scales = at::rand({3});
      const auto found = ours_.CrossEntropy(logits, targets);
      const auto wanted = theirs_->CrossEntropy(Wide(logits), targets);
      ExpectClose(found.losses, wanted.losses, "losses");
      ExpectClose(found.log_sums, wanted.log_sums, "log sums");
      ExpectClose(ours_.CrossEntropyGradient(logits, targets, found.log_sums, scales),
                  theirs_->CrossEntropyGradient(Wide(logits), targets, wanted.log_sums, scales),
                  "gradient of logits");
    }
  }
}

TEST_F(KernelsOnHostTest, GeluAndSumsMatchLibtorch) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t columns : {3, 264}) {
      const Tensor x = (at::randn({19, columns}) * 4).to(type), dy = at::randn_like(x);
      ExpectClose(ours_.Gelu(x), theirs_->Gelu(Wide(x)), "GELU");
      const auto found = ours_.GradientOfGelu(dy, x);
      const auto wanted = theirs_->GradientOfGelu(Wide(dy), Wide(x));
      ExpectClose(found.rows, wanted.rows, "gradient of GELU");
      ExpectClose(found.sums, wanted.sums, "sums of the gradient");
      ExpectClose(ours_.SumRows(x), theirs_->SumRows(Wide(x)), "sums");
      const auto joined = ours_.JoinThirds({x, dy, x});
      EXPECT_TRUE(joined.rows.equal(at::cat({x, dy, x}, 1)));
      ExpectClose(joined.sums, theirs_->SumRows(Wide(joined.rows)), "sums of thirds");
    }
  }
}

TEST_F(KernelsOnHostTest, LayerNormMatchesLibtorch) {
  const Tensor x = (at::randn({35, 264}) + 1).to(at::kBFloat16), branch = at::randn_like(x);
  const Tensor weight = at::rand({264}).to(at::kBFloat16), bias = at::randn_like(weight);
  const auto found = ours_.LayerNorm(x, branch, weight, bias, 1e-5);
  EXPECT_TRUE(found.sums.equal(x + branch));
  const auto wanted = theirs_->LayerNorm(Wide(found.sums), {}, Wide(weight), Wide(bias), 1e-5);
  ExpectClose(found.normalized, wanted.normalized, "layer norm");
  const Tensor dy = at::randn_like(x), dsum = at::randn_like(x);
  const auto by = ours_.GradientsOfLayerNorm(dy, dsum, found, weight);
  const auto wanted_by = theirs_->GradientsOfLayerNorm(Wide(dy), Wide(dsum), wanted, Wide(weight));
  ExpectClose(by.x, wanted_by.x, "gradient of x");
  ExpectClose(by.weight, wanted_by.weight, "gradient of weight");
  ExpectClose(by.bias, wanted_by.bias, "gradient of bias");
}

TEST_F(KernelsOnHostTest, RmsNormMatchesLibtorch) {
  const std::pair<at::ScalarType, int64_t> versions[] = {
      {at::kBFloat16, 264}, {at::kFloat, 1028}, {at::kHalf, 8192}};
  for (const auto& [type, columns] : versions) {
    for (const int64_t rows : {1, 7}) {
      for (const bool has_branch : {false, true}) {
        const Tensor x = at::randn({rows, columns}).to(type);
        const Tensor branch = has_branch ? at::randn_like(x) : Tensor();
        const Tensor weight = at::rand({columns}).to(type);
        ASSERT_TRUE(ours_.HasRmsNorm(x));
        const auto found = ours_.RmsNorm(x, branch, weight, 1e-5);
        EXPECT_TRUE(found.sums.equal(has_branch ? x + branch : x));
        const auto wanted = theirs_->RmsNorm(Wide(found.sums), {}, Wide(weight), 1e-5);
        ExpectClose(found.normalized, wanted.normalized, "RMS norm");
        ExpectClose(found.inverses, wanted.inverses, "inverses");
        const Tensor dy = at::randn_like(x), dsum = has_branch ? at::randn_like(x) : Tensor();
        const auto by = ours_.GradientsOfRmsNorm(dy, dsum, found, weight);
        const auto wanted_by = theirs_->GradientsOfRmsNorm(
            Wide(dy), has_branch ? Wide(dsum) : Tensor(), wanted, Wide(weight));
        ExpectClose(by.x, wanted_by.x, "gradient of x");
        ExpectClose(by.weight, wanted_by.weight, "gradient of weight");
      }
    }
  }
  EXPECT_FALSE(ours_.HasRmsNorm(at::empty({1, 8200}, at::kHalf)));
}

TEST_F(KernelsOnHostTest, RotationMatchesLibtorch) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t half : {3, 8, 64}) {
      const Tensor x = at::randn({2, 5, 3, 2 * half}).to(type);
      const Tensor angles = at::randn({5, half});
      const Tensor cosines = angles.cos().to(type), sines = angles.sin().to(type);
      for (const double direction : {1.0, -1.0}) {
        ExpectClose(ours_.Rotate(x, cosines, sines, direction),
                    theirs_->Rotate(Wide(x), Wide(cosines), Wide(sines), direction), "rotation");
      }
    }
  }
}

TEST_F(KernelsOnHostTest, SwiGluMatchesLibtorch) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t columns : {5, 344}) {
      Tensor gate = (at::randn({9, columns}) * 4).to(type);
      gate[0][0] = -1e4;
      gate[0][1] = 1e4;
      const Tensor up = at::randn_like(gate), dy = at::randn_like(gate);
      ExpectClose(ours_.SwiGlu(gate, up), theirs_->SwiGlu(Wide(gate), Wide(up)), "SwiGLU");
      const auto found = ours_.GradientsOfSwiGlu(dy, gate, up);
      const auto wanted = theirs_->GradientsOfSwiGlu(Wide(dy), Wide(gate), Wide(up));
      ExpectClose(found.gate, wanted.gate, "gradient of the gate");
      ExpectClose(found.up, wanted.up, "gradient of up");
    }
  }
}

}  // namespace
}  // namespace dslaunch
