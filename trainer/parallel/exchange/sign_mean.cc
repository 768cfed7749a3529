#include "trainer/parallel/exchange/sign_mean.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <numeric>

#include "trainer/comm/desync_detector.h"

namespace dslaunch {
namespace {

constexpr int64_t kSignBits = 8;       // number of signs per byte
constexpr int64_t kScaleBytes = 4;     // size of an fp32 scale, in bytes
constexpr int64_t kGrainBytes = 4096;  // minimum number of bytes of signs per thread

at::Tensor BitWeights(const at::Tensor& like) {
  return at::tensor({128, 64, 32, 16, 8, 4, 2, 1}, at::kByte).to(like.device());
}

// Returns the root mean square of the elements.
at::Tensor SizeOf(const at::Tensor& values) {
  return at::norm(values) / std::sqrt(static_cast<double>(values.numel()));
}

// Returns the bytes in which a message [bytes], or messages [ranks, bytes], store the scale of the
// tensor with index `tensor`.
at::Tensor ScalePlace(const at::Tensor& message, size_t tensor) {
  return message.narrow(-1, static_cast<int64_t>(tensor) * kScaleBytes, kScaleBytes);
}

at::Tensor AsBytes(const at::Tensor& scale) {
  return scale.to(at::kFloat).view({1}).view(at::kByte);
}
at::Tensor AsScale(const at::Tensor& bytes) {
  return bytes.contiguous().view(at::kFloat).squeeze(-1);
}

}  // namespace

void PackSigns(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& packed) {
  if (!values.is_cpu()) {
    const at::Tensor signs = (values < 0).logical_not().view({-1, kSignBits});
    packed.copy_((signs * BitWeights(values)).sum(1));
    values.sub_(scale * (signs.flatten().to(at::kFloat) * 2 - 1));
    return;
  }
  auto* const value = values.mutable_data_ptr<float>();
  auto* const bytes = packed.mutable_data_ptr<uint8_t>();
  const auto size = scale.item<float>();
  at::parallel_for(0, packed.numel(), kGrainBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      unsigned signs = 0;
      for (int64_t bit = 0; bit < kSignBits; ++bit) {
        float& element = value[i * kSignBits + bit];
        const bool positive = !(element < 0);
        signs = signs << 1 | (positive ? 1U : 0U);
        element -= positive ? size : -size;
      }
      bytes[i] = static_cast<uint8_t>(signs);
    }
  });
}

void AddSigns(const at::Tensor& packed, const at::Tensor& scale, const at::Tensor& sum) {
  if (!sum.is_cpu()) {
    const at::Tensor signs = packed.unsqueeze(1).bitwise_and(BitWeights(sum)).ne(0);
    sum.add_(scale * (signs.flatten().to(at::kFloat) * 2 - 1));
    return;
  }
  const auto* const bytes = packed.const_data_ptr<uint8_t>();
  auto* const value = sum.mutable_data_ptr<float>();
  const auto size = scale.item<float>();
  at::parallel_for(0, packed.numel(), kGrainBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t bit = 0; bit < kSignBits; ++bit) {
        const bool positive = (bytes[i] >> (kSignBits - 1 - bit) & 1) != 0;
        value[i * kSignBits + bit] += positive ? size : -size;
      }
    }
  });
}

CompressionError SignMean::NoError(int64_t elements, const at::Tensor& like) const {
  // Each rank's part must fill whole bytes. As in DeepSpeed, the part's size is also a multiple of
  // the number of ranks.
  const int64_t unit = ranks() * std::lcm(int64_t{ranks()}, kSignBits);
  const int64_t padded = (elements + unit - 1) / unit * unit;
  const auto options = at::TensorOptions(like.device()).dtype(at::kFloat);
  return {at::zeros({padded}, options), at::zeros({padded / ranks()}, options)};
}

void SignMean::Reduce(const std::vector<at::Tensor>& tensors,
                      const std::vector<CompressionError>& errors) {
  const at::NoGradGuard no_grad;
  int64_t bytes = static_cast<int64_t>(tensors.size()) * kScaleBytes;
  for (const CompressionError& error : errors) bytes += error.server.numel() / kSignBits;
  const at::Tensor first =
      at::empty({ranks(), bytes}, at::TensorOptions(group_.device()).dtype(at::kByte));
  at::Tensor sent = first, received = at::empty_like(first);
  const auto each = [&](const auto& action) {
    int64_t start = static_cast<int64_t>(tensors.size()) * kScaleBytes;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t part = errors[i].server.numel() / kSignBits;
      action(i, start, part);
      start += part;
    }
  };

  each([&](size_t i, int64_t start, int64_t part) {
    const at::Tensor& values = errors[i].worker;
    values.narrow(0, 0, tensors[i].numel()).add_(tensors[i].flatten());
    const at::Tensor scale = SizeOf(values);
    const at::Tensor packed = at::empty({ranks() * part}, sent.options());
    PackSigns(values, scale, packed);
    ScalePlace(sent, i).copy_(AsBytes(scale));
    sent.narrow(1, start, part).copy_(packed.view({ranks(), part}));
  });
  {
    std::vector<int64_t> equal_parts;
    const Exchange exchange = group_.desync_detector().Begin("an exchange of signs");
    group_.desync_detector().Wait(
        exchange, group_.c10d_group()->alltoall_base(received, sent, equal_parts, equal_parts));
  }

  const at::Tensor mine = at::empty({bytes}, sent.options());
  each([&](size_t i, int64_t start, int64_t part) {
    const at::Tensor scales = AsScale(ScalePlace(received, i)) * (1.0 / ranks());
    const at::Tensor mean = at::zeros_like(errors[i].server);
    for (int rank = 0; rank < ranks(); ++rank) {
      AddSigns(received[rank].narrow(0, start, part), scales[rank], mean);
    }
    errors[i].server.add_(mean);
    const at::Tensor scale = SizeOf(errors[i].server);
    PackSigns(errors[i].server, scale, mine.narrow(0, start, part));
    ScalePlace(mine, i).copy_(AsBytes(scale));
  });

  const at::Tensor all = group_.AllGather(mine);
  each([&](size_t i, int64_t start, int64_t part) {
    const at::Tensor scales = AsScale(ScalePlace(all, i));
    const at::Tensor mean = at::zeros({ranks(), part * kSignBits}, errors[i].worker.options());
    for (int rank = 0; rank < ranks(); ++rank) {
      AddSigns(all[rank].narrow(0, start, part), scales[rank], mean[rank]);
    }
    tensors[i].copy_(mean.flatten().narrow(0, 0, tensors[i].numel()).view(tensors[i].sizes()));
  });
}

}  // namespace dslaunch
