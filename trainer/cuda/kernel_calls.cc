#include "trainer/cuda/kernel_calls.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

namespace dslaunch {
namespace {

// Sizes of blocks and loops, which must equal the values in the sources of the kernels.
constexpr int kRowThreads = 512, kColumnThreads = 32, kColumnRows = 8, kFinishRows = 32;
constexpr int kAtOnce = 4;
constexpr int kElementThreads = 256;
constexpr int kWarp = 32, kNormWarps = 8;
// Maximum number of packs of a row that a lane keeps in its 255 registers. Layer normalization uses
// one warp for each row. RMS normalization uses as many warps as the row needs with this number of
// packs.
constexpr int64_t kMaxLayerNormPacks = 8, kMaxRmsNormPacks = 4;
constexpr int64_t kWideBytes = 16;
// Number of blocks per multiprocessor that sum rows: enough to keep the memory busy, but few enough
// to give few partial sums.
constexpr int64_t kBlocksPerProcessor = 4;
// Number of blocks for norms, limited by a multiprocessor's registers.
constexpr int64_t kNormBlocksPerProcessor = 2;

int64_t PackedColumns(const at::Tensor& rows) { return kWideBytes / rows.element_size(); }

// Returns whether every row is aligned for loads of kWideBytes.
bool IsWide(const at::Tensor& rows) {
  return rows.size(-1) % PackedColumns(rows) == 0 &&
         reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kWideBytes == 0;
}

int64_t DividedUp(int64_t number, int64_t by) { return (number + by - 1) / by; }

unsigned Unsigned(int64_t number) { return static_cast<unsigned>(number); }

const void* Pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Returns `tensor`, or a copy if it is not aligned for wide loads, as a part of another tensor may
// be.
at::Tensor Wide(const at::Tensor& tensor) {
  return !tensor.defined() || IsWide(tensor) ? tensor : tensor.clone();
}

// Returns a grid with one thread for each pack of the `elements` elements.
KernelGrid ElementGrid(int64_t elements, const at::Tensor& like, bool wide) {
  const int64_t packs = elements / (wide ? PackedColumns(like) : 1);
  return {Unsigned(DividedUp(packs, kElementThreads))};
}

// Returns the number of warps that process each row, a power of 2.
int64_t RowWarps(const at::Tensor& rows) {
  const int64_t needed = DividedUp(rows.size(1), kMaxRmsNormPacks * kWarp * PackedColumns(rows));
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(needed)));
}
int64_t RmsNormBlocks(const at::Tensor& rows) {
  return DividedUp(rows.size(0), kNormWarps / RowWarps(rows));
}

KernelVersion LayerNormFor(const char* name, const at::Tensor& x) {
  return {name, x.scalar_type(), x.size(1), 1};
}
KernelVersion RmsNormFor(const char* name, const at::Tensor& x) {
  return {name, x.scalar_type(), x.size(1), RowWarps(x)};
}

}  // namespace

KernelGrid KernelCalls::ColumnGrid(const at::Tensor& rows, bool wide) const {
  const int64_t across = DividedUp(rows.size(1), kColumnThreads * (wide ? PackedColumns(rows) : 1));
  const int64_t down = std::clamp<int64_t>(kBlocksPerProcessor * processors_ / across, 1,
                                           DividedUp(rows.size(0), kColumnRows));
  return {Unsigned(across), Unsigned(down)};
}

template <typename... Pointers>
FusedKernels::RowsAndSums KernelCalls::WithSums(const at::Tensor& rows, bool wide, const char* name,
                                                Pointers... pointers) {
  const KernelGrid grid = ColumnGrid(rows, wide);
  const at::Tensor parts = at::empty({1, grid.y, rows.size(1)}, rows.options().dtype(at::kFloat));
  Call({name, rows.scalar_type()}, grid, {kColumnThreads, kColumnRows}, pointers..., rows.size(0),
       rows.size(1), parts.mutable_data_ptr(), wide);
  return {rows, Finish(parts, rows)[0]};
}

at::Tensor KernelCalls::Finish(const at::Tensor& parts, const at::Tensor& like) {
  at::Tensor sums = at::empty({parts.size(0), parts.size(2)}, like.options());
  Call({"finish", like.scalar_type()},
       {Unsigned(DividedUp(parts.size(2), kColumnThreads)), Unsigned(parts.size(0))},
       {kColumnThreads, kFinishRows}, parts.const_data_ptr(), parts.size(1), parts.size(2),
       sums.mutable_data_ptr());
  return sums;
}

FusedKernels::RowLosses KernelCalls::CrossEntropy(const at::Tensor& logits,
                                                  const at::Tensor& targets) {
  const at::TensorOptions fp32 = logits.options().dtype(at::kFloat);
  RowLosses found = {at::empty({logits.size(0)}, fp32), at::empty({logits.size(0)}, fp32)};
  Call({"cross_entropy", logits.scalar_type()}, {Unsigned(logits.size(0))}, {kRowThreads},
       logits.const_data_ptr(), targets.const_data_ptr(), logits.size(1),
       found.log_sums.mutable_data_ptr(), found.losses.mutable_data_ptr(), IsWide(logits));
  return found;
}

at::Tensor KernelCalls::CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                             const at::Tensor& log_sums, const at::Tensor& scales) {
  at::Tensor gradient = at::empty_like(logits);
  Call({"cross_entropy_gradient", logits.scalar_type()}, {Unsigned(logits.size(0))}, {kRowThreads},
       logits.const_data_ptr(), targets.const_data_ptr(), logits.size(1), log_sums.const_data_ptr(),
       scales.const_data_ptr(), gradient.mutable_data_ptr(), IsWide(logits) && IsWide(gradient));
  return gradient;
}

at::Tensor KernelCalls::SumRows(const at::Tensor& rows) {
  return WithSums(rows, IsWide(rows), "sum_rows", rows.const_data_ptr()).sums;
}

at::Tensor KernelCalls::Gelu(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const bool wide = IsWide(x) && IsWide(y);
  const int64_t packs = x.numel() / (wide ? PackedColumns(x) : 1);
  Call({"gelu", x.scalar_type()}, {Unsigned(DividedUp(packs, kRowThreads * kAtOnce))},
       {kRowThreads}, x.const_data_ptr(), x.numel(), y.mutable_data_ptr(), wide);
  return y;
}

FusedKernels::RowsAndSums KernelCalls::GradientOfGelu(const at::Tensor& gradient,
                                                      const at::Tensor& x) {
  const at::Tensor by_x = at::empty_like(x);
  return WithSums(by_x, IsWide(gradient) && IsWide(x) && IsWide(by_x), "gelu_gradient",
                  gradient.const_data_ptr(), x.const_data_ptr(), by_x.mutable_data_ptr());
}

FusedKernels::RowsAndSums KernelCalls::JoinThirds(const std::array<at::Tensor, 3>& thirds) {
  const auto& [first, second, third] = thirds;
  const at::Tensor all = at::empty({first.size(0), 3 * first.size(1)}, first.options());
  const bool wide = std::ranges::all_of(thirds, &IsWide) && IsWide(all);
  return WithSums(all, wide, "join_thirds", first.const_data_ptr(), second.const_data_ptr(),
                  third.const_data_ptr(), all.mutable_data_ptr());
}

bool KernelCalls::HasLayerNorm(const at::Tensor& rows) const {
  return IsWide(rows) && rows.size(1) <= kMaxLayerNormPacks * kWarp * PackedColumns(rows);
}

FusedKernels::Normalized KernelCalls::LayerNorm(const at::Tensor& x, const at::Tensor& branch,
                                                const at::Tensor& weight, const at::Tensor& bias,
                                                double epsilon) {
  const at::TensorOptions fp32 = x.options().dtype(at::kFloat);
  const at::Tensor other = Wide(branch), w = Wide(weight), b = Wide(bias);
  Normalized found = {branch.defined() ? at::empty_like(x) : x, at::empty_like(x),
                      at::empty({x.size(0)}, fp32), at::empty({x.size(0)}, fp32)};
  Call(LayerNormFor("layer_norm", x), {Unsigned(DividedUp(x.size(0), kNormWarps))},
       {kWarp, kNormWarps}, x.const_data_ptr(), Pointer(other), w.const_data_ptr(),
       b.const_data_ptr(), x.size(0), static_cast<float>(epsilon), found.sums.mutable_data_ptr(),
       found.normalized.mutable_data_ptr(), found.means.mutable_data_ptr(),
       found.inverse_deviations.mutable_data_ptr());
  return found;
}

FusedKernels::LayerNormGradients KernelCalls::GradientsOfLayerNorm(const at::Tensor& gradient,
                                                                   const at::Tensor& sum_gradient,
                                                                   const Normalized& forward,
                                                                   const at::Tensor& weight) {
  const at::Tensor& x = forward.sums;
  const int64_t blocks =
      std::min(kNormBlocksPerProcessor * processors_, DividedUp(x.size(0), kNormWarps));
  const at::Tensor own = Wide(gradient), more = Wide(sum_gradient), w = Wide(weight);
  const at::Tensor by_x = at::empty_like(x);
  const at::Tensor parts = at::empty({2, blocks, x.size(1)}, x.options().dtype(at::kFloat));
  const at::Tensor of_weight = parts[0], of_bias = parts[1];
  Call(LayerNormFor("layer_norm_gradients", x), {Unsigned(blocks)}, {kWarp, kNormWarps},
       own.const_data_ptr(), Pointer(more), x.const_data_ptr(), w.const_data_ptr(),
       forward.means.const_data_ptr(), forward.inverse_deviations.const_data_ptr(), x.size(0),
       by_x.mutable_data_ptr(), of_weight.mutable_data_ptr(), of_bias.mutable_data_ptr());
  const at::Tensor sums = Finish(parts, x);
  return {by_x, sums[0], sums[1]};
}

bool KernelCalls::HasRmsNorm(const at::Tensor& rows) const {
  return IsWide(rows) && RowWarps(rows) <= kNormWarps;
}

FusedKernels::RmsNormalized KernelCalls::RmsNorm(const at::Tensor& x, const at::Tensor& branch,
                                                 const at::Tensor& weight, double epsilon) {
  const at::Tensor other = Wide(branch), w = Wide(weight);
  RmsNormalized found = {branch.defined() ? at::empty_like(x) : x, at::empty_like(x),
                         at::empty({x.size(0)}, x.options().dtype(at::kFloat))};
  Call(RmsNormFor("rms_norm", x), {Unsigned(RmsNormBlocks(x))}, {kWarp, kNormWarps},
       x.const_data_ptr(), Pointer(other), w.const_data_ptr(), x.size(0),
       static_cast<float>(epsilon), found.sums.mutable_data_ptr(),
       found.normalized.mutable_data_ptr(), found.inverses.mutable_data_ptr());
  return found;
}

FusedKernels::RmsNormGradients KernelCalls::GradientsOfRmsNorm(const at::Tensor& gradient,
                                                               const at::Tensor& sum_gradient,
                                                               const RmsNormalized& forward,
                                                               const at::Tensor& weight) {
  const at::Tensor& x = forward.sums;
  const int64_t blocks = std::min(kNormBlocksPerProcessor * processors_, RmsNormBlocks(x));
  const at::Tensor own = Wide(gradient), more = Wide(sum_gradient), w = Wide(weight);
  const at::Tensor by_x = at::empty_like(x);
  const at::Tensor parts = at::empty({1, blocks, x.size(1)}, x.options().dtype(at::kFloat));
  Call(RmsNormFor("rms_norm_gradients", x), {Unsigned(blocks)}, {kWarp, kNormWarps},
       own.const_data_ptr(), Pointer(more), x.const_data_ptr(), w.const_data_ptr(),
       forward.inverses.const_data_ptr(), x.size(0), by_x.mutable_data_ptr(),
       parts.mutable_data_ptr());
  return {by_x, Finish(parts, x)[0]};
}

at::Tensor KernelCalls::Rotate(const at::Tensor& x, const at::Tensor& cosines,
                               const at::Tensor& sines, double direction) {
  const at::Tensor y = at::empty_like(x);
  const bool wide = IsWide(x) && IsWide(y) && IsWide(cosines) && IsWide(sines);
  Call({"rotate", x.scalar_type()}, ElementGrid(x.numel() / 2, x, wide), {kElementThreads},
       x.const_data_ptr(), cosines.const_data_ptr(), sines.const_data_ptr(), x.numel() / x.size(-1),
       x.size(-2), cosines.size(0), cosines.size(1), static_cast<float>(direction),
       y.mutable_data_ptr(), wide);
  return y;
}

at::Tensor KernelCalls::SwiGlu(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y = at::empty_like(gate);
  const bool wide = IsWide(gate) && IsWide(up) && IsWide(y);
  Call({"swiglu", gate.scalar_type()}, ElementGrid(gate.numel(), gate, wide), {kElementThreads},
       gate.const_data_ptr(), up.const_data_ptr(), gate.numel(), y.mutable_data_ptr(), wide);
  return y;
}

FusedKernels::SwiGluInputs KernelCalls::GradientsOfSwiGlu(const at::Tensor& gradient,
                                                          const at::Tensor& gate,
                                                          const at::Tensor& up) {
  SwiGluInputs found = {at::empty_like(gate), at::empty_like(up)};
  const bool wide =
      IsWide(gradient) && IsWide(gate) && IsWide(up) && IsWide(found.gate) && IsWide(found.up);
  Call({"swiglu_gradients", gate.scalar_type()}, ElementGrid(gate.numel(), gate, wide),
       {kElementThreads}, gradient.const_data_ptr(), gate.const_data_ptr(), up.const_data_ptr(),
       gate.numel(), found.gate.mutable_data_ptr(), found.up.mutable_data_ptr(), wide);
  return found;
}

}  // namespace dslaunch
