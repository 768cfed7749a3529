#include "trainer/families/decoder/positions.h"

#include <ATen/ATen.h>

#include "trainer/nn/causal_attention.h"

namespace dslaunch {
namespace {

// Returns a tensor that shares the memory of `values`, and keeps `owner`, which contains `values`,
// alive. Operations have no memory in a ShapePass (trainer/deferred_init/shape_pass.h), so none is
// used.
template <class T, class Owner>
at::Tensor Over(const std::vector<T>& values, std::shared_ptr<Owner> owner, at::IntArrayRef shape,
                at::ScalarType type) {
  return at::from_blob(
      const_cast<T*>(values.data()), shape, [owner = std::move(owner)](void*) {},
      at::TensorOptions().dtype(type));
}

bool IsLike(const at::Tensor& tensor, const at::TensorOptions& options) {
  return tensor.defined() && tensor.options().device() == options.device() &&
         tensor.options().dtype() == options.dtype();
}

}  // namespace

at::Tensor Positions::OnDevice(const at::Tensor& host, const Key& key,
                               const at::TensorOptions& options) {
  if (options.device().is_cpu()) return host.to(options);
  at::Tensor& copy = on_device_[key];
  if (!IsLike(copy, options)) copy = host.to(options);
  return copy;
}

std::pair<at::Tensor, at::Tensor> Positions::Rotation(const at::Tensor& like,
                                                      const at::Tensor& positions) {
  if (positions.defined() && positions.is_same(last_positions_) &&
      last_cosines_.scalar_type() == like.scalar_type()) {
    return {last_cosines_, last_sines_};
  }
  const bool continues = cache() != nullptr && !cache()->in_first_pass();
  const int64_t length = continues ? cache()->capacity() : like.size(1);
  if (length > positions_) {
    table_ = std::make_shared<RotaryTable>(MakeRotaryTable(config_, head_dim_, length));
    positions_ = length;
  }
  const auto side = [&](const std::vector<float>& values, Kind kind) {
    const at::Tensor all = OnDevice(Over(values, table_, {length, 1, head_dim_ / 2}, at::kFloat),
                                    {kind, length}, like.options());
    return continues ? all.index_select(0, cache()->last_positions()).unsqueeze(1) : all;
  };
  const at::Tensor cosines = side(table_->cosines, Kind::kCosines);
  const at::Tensor sines = side(table_->sines, Kind::kSines);
  if (!positions.defined()) return {cosines, sines};
  last_positions_ = positions;
  const auto at_positions = [&](const at::Tensor& of_all) {
    return of_all.index_select(0, positions.flatten())
        .view({positions.size(0), length, 1, head_dim_ / 2});
  };
  last_cosines_ = at_positions(cosines);
  last_sines_ = at_positions(sines);
  return {last_cosines_, last_sines_};
}

at::Tensor Positions::Mask(int64_t length, int64_t window, const at::Tensor& like) {
  std::shared_ptr<const std::vector<char>>& mask = masks_[{length, window}];
  if (!mask) {
    std::vector<char> sees(static_cast<size_t>(length * length));
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t j = std::max<int64_t>(0, i - window + 1); j <= i; ++j) {
        sees[static_cast<size_t>(i * length + j)] = 1;
      }
    }
    mask = std::make_shared<const std::vector<char>>(std::move(sees));
  }
  const at::Tensor sees = Over(*mask, mask, {length, length}, at::kBool);
  if (like.is_cpu()) return sees;
  at::Tensor& copy = on_device_[{Kind::kMask, length}];
  if (!IsLike(copy, like.options())) {
    copy = AdditiveMask(sees.to(like.device()), like.scalar_type());
  }
  return copy;
}

}  // namespace dslaunch
