#include "trainer/parallel/exchange/power_sgd.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "trainer/parallel/exchange/flat_mean.h"

namespace dslaunch {
namespace {

// Largest rank of a factor for which Gram-Schmidt is faster than QR.
constexpr int64_t kGramSchmidtRank = 2;
constexpr uint32_t kSeeds = 1'000'000'000;

// Returns the `count`-th value of NumPy's RandomState(seed).randint(kSeeds), which PyTorch uses as
// a seed.
uint64_t SeedOf(int64_t seed, int64_t count) {
  std::mt19937 numbers(static_cast<uint32_t>(seed));
  constexpr uint32_t kMask = (1U << 30) - 1;
  uint32_t value = 0;
  for (int64_t i = 0; i < count; ++i) {
    do value = static_cast<uint32_t>(numbers()) & kMask;
    while (value >= kSeeds);
  }
  return value;
}

}  // namespace

PowerSgd::PowerSgd(const ParallelConfig& config, const ProcessGroup& group,
                   std::vector<at::Tensor> buffers, const std::vector<NamedTensor>& parameters,
                   at::ScalarType dtype)
    : GradientExchange(group, std::move(buffers)),
      config_(config),
      started_(at::zeros({1}, at::kLong)) {
  for (const NamedTensor& parameter : parameters) names_.push_back(parameter.name);
  for (size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& tensor = parameters[i].tensor;
    Matrix matrix;
    matrix.parameter = i;
    matrix.rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    matrix.columns = tensor.numel() / std::max<int64_t>(matrix.rows, 1);
    matrix.rank = std::min({matrix.rows, matrix.columns, config_.matrix_approximation_rank});
    const auto compressed = static_cast<double>((matrix.rows + matrix.columns) * matrix.rank);
    if (compressed * config_.min_compression_rate < static_cast<double>(tensor.numel())) {
      const auto options =
          at::TensorOptions(tensor.device()).dtype(at::promote_types(dtype, tensor.scalar_type()));
      if (config_.use_error_feedback) {
        matrix.error = at::zeros({matrix.rows, matrix.columns}, options);
      }
      matrix.right = at::zeros({matrix.columns, matrix.rank}, options);
      matrices_.push_back(std::move(matrix));
    } else {
      whole_.push_back(i);
    }
  }
}

void PowerSgd::StartMatrices(at::ScalarType dtype) {
  int64_t& count = *started_.mutable_data_ptr<int64_t>();
  at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(SeedOf(config_.random_seed, ++count));
  for (Matrix& matrix : matrices_) {
    matrix.right.copy_(at::randn({1, matrix.columns, matrix.rank}, generator, at::dtype(dtype))[0]);
  }
}

void PowerSgd::Orthogonalize(at::Tensor& matrix) const {
  const int64_t rank = matrix.size(1);
  if (rank > kGramSchmidtRank && matrix.element_size() > 2) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return;
  }
  for (int64_t i = 0; i < rank; ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    column.div_(at::norm(column) + config_.orthogonalization_epsilon);
    if (i + 1 == rank) break;
    const at::Tensor rest = matrix.narrow(1, i + 1, rank - i - 1);
    rest.sub_((column * rest).sum(0, /*keepdim=*/true) * column);
  }
}

void PowerSgd::Reduce(const std::vector<at::Tensor>& gradients) {
  if (group_.world_size() == 1) return;
  const at::NoGradGuard no_grad;
  const GradientScale mean = MeanScale(group_);
  if (steps_ < config_.start_iter) return AllReduceFlat(group_, gradients, std::nullopt, mean);
  std::vector<at::Tensor> whole, left, right, values;
  for (const size_t i : whole_) whole.push_back(gradients[i]);
  AllReduceFlat(group_, whole, std::nullopt, mean);
  if (matrices_.empty()) return;

  if (started_.item<int64_t>() == 0 || !config_.warm_start) {
    StartMatrices(gradients[matrices_[0].parameter].scalar_type());
  }
  for (Matrix& matrix : matrices_) {
    values.push_back(gradients[matrix.parameter].view({matrix.rows, matrix.columns}));
    if (matrix.error.defined()) {
      values.back().add_(matrix.error);
      matrix.error.copy_(values.back());
    }
    Orthogonalize(matrix.right);
    right.push_back(matrix.right);
    left.push_back(at::mm(values.back(), matrix.right));
  }
  // Orthogonalize normalizes the result, so a sum suffices in place of a mean.
  AllReduceFlat(group_, left, std::nullopt, {});
  for (size_t i = 0; i < matrices_.size(); ++i) {
    Orthogonalize(left[i]);
    at::mm_out(right[i], values[i].t(), left[i]);
  }
  AllReduceFlat(group_, right, std::nullopt, mean);
  for (size_t i = 0; i < matrices_.size(); ++i) {
    at::mm_out(values[i], left[i], right[i].t());
    if (matrices_[i].error.defined()) matrices_[i].error.sub_(values[i]);
  }
}

void PowerSgd::Restart() {
  started_.zero_();
  for (const Matrix& matrix : matrices_) {
    if (matrix.error.defined()) matrix.error.zero_();
  }
}

std::vector<RankTensor> PowerSgd::RankTensors() const {
  std::vector<RankTensor> tensors = {{"powersgd/started", started_}};
  for (const Matrix& matrix : matrices_) {
    const std::string& name = names_[matrix.parameter];
    tensors.push_back({"powersgd/right/" + name, matrix.right});
    if (matrix.error.defined()) {
      tensors.push_back({"powersgd/error/" + name, matrix.error, /*shared=*/false});
    }
  }
  return tensors;
}

}  // namespace dslaunch
