#include "trainer/cuda/cuda_kernels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {
namespace {

// Raw strings, by CMakeLists.txt.
constexpr char kCommon[] =
#include "trainer/cuda/common.inc"
    ;
constexpr char kRowKernels[] =
#include "trainer/cuda/row_kernels.inc"
    ;
constexpr char kLayerNormKernels[] =
#include "trainer/cuda/layer_norm_kernels.inc"
    ;

// Those of the sources.
constexpr int kRowThreads = 512, kColumnThreads = 32, kColumnRows = 8, kFinishRows = 32;
constexpr int kAtOnce = 4;
constexpr int kWarp = 32, kNormRows = 8;
// Of a layer normalization: more would not fit a thread's 255 registers.
constexpr int64_t kMaxPacks = 8;
constexpr int64_t kWideBytes = 16;
// Blocks for each multiprocessor that add up rows: enough to keep its memory busy, and few to add
// up.
constexpr int64_t kBlocksPerProcessor = 4;
constexpr int64_t kNormBlocksPerProcessor = 2;  // for which a multiprocessor has registers

// The part of NVRTC's interface that is used. Its header is not among those of LibTorch's CUDA
// runtime, and the library is opened only here, since a trainer also runs without it.
class Nvrtc {
 public:
  Nvrtc() : library_(dlopen(kLibrary.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    TORCH_CHECK(library_ != nullptr, dlerror());
  }

  // A cubin of `kernels` and what they share. `name` is for messages; `options` follow NVRTC's
  // manual.
  std::vector<char> Compile(const char* name, const char* kernels,
                            const std::vector<std::string>& options) const {
    const std::string source = std::string(kCommon) + kernels;
    void* program = nullptr;
    Check("nvrtcCreateProgram",
          Find<int(void**, const char*, const char*, int, const char* const*, const char* const*)>(
              "nvrtcCreateProgram")(&program, source.c_str(), name, 0, nullptr, nullptr));
    std::vector<const char*> words;
    for (const std::string& option : options) words.push_back(option.c_str());
    const int code = Find<int(void*, int, const char* const*)>("nvrtcCompileProgram")(
        program, static_cast<int>(words.size()), words.data());
    if (code != 0) {
      const std::vector<char> log = Read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
      TORCH_CHECK(false, "NVRTC refuses ", name, ": ", std::string(log.begin(), log.end()));
    }
    std::vector<char> cubin = Read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN");
    Check("nvrtcDestroyProgram", Find<int(void**)>("nvrtcDestroyProgram")(&program));
    return cubin;
  }

 private:
  inline static const std::string kLibrary = "libnvrtc.so." + std::to_string(DSLAUNCH_CUDA_MAJOR);

  template <typename F>
  F* Find(const char* name) const {
    void* const found = dlsym(library_, name);
    TORCH_CHECK(found != nullptr, kLibrary, " has no ", name);
    return reinterpret_cast<F*>(found);
  }
  static void Check(const char* what, int code) {
    TORCH_CHECK(code == 0, what, " of ", kLibrary, " failed with ", code);
  }
  std::vector<char> Read(void* program, const char* size_name, const char* name) const {
    size_t size = 0;
    Check(size_name, Find<int(void*, size_t*)>(size_name)(program, &size));
    std::vector<char> bytes(size);
    Check(name, Find<int(void*, char*)>(name)(program, bytes.data()));
    return bytes;
  }

  void* const library_;  // stays open
};

// One for each type of element.
struct RowKernels {
  cudaKernel_t cross_entropy, cross_entropy_gradient, sum_rows, finish, gelu, gelu_gradient,
      join_thirds;
};

struct LayerNormKernels {
  cudaKernel_t forward, gradients;
};

// What the sources call it.
std::string NameOf(at::ScalarType type) {
  return type == at::kHalf ? "Half" : type == at::kBFloat16 ? "Bfloat" : "float";
}

int64_t PackedColumns(const at::Tensor& rows) { return kWideBytes / rows.element_size(); }

// Whether each row begins where a load of kWideBytes may.
bool IsWide(const at::Tensor& rows) {
  return rows.size(-1) % PackedColumns(rows) == 0 &&
         reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kWideBytes == 0;
}

int64_t DividedUp(int64_t number, int64_t by) { return (number + by - 1) / by; }

class CudaKernels : public FusedKernels {
 public:
  explicit CudaKernels(int index) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    const cudaDeviceProp& device = *at::cuda::getCurrentDeviceProperties();
    processors_ = device.multiProcessorCount;
    options_ = {"--gpu-architecture=sm_" + std::to_string(10 * device.major + device.minor),
                "--std=c++17"};
    cudaLibrary_t library = Load("row_kernels.cu", kRowKernels, options_);
    const auto of = [&](const std::string& type) {
      const auto kernel = [&](const char* name) { return Kernel(library, name + type); };
      return RowKernels{kernel("cross_entropy_"), kernel("cross_entropy_gradient_"),
                        kernel("sum_rows_"),      kernel("finish_"),
                        kernel("gelu_"),          kernel("gelu_gradient_"),
                        kernel("join_thirds_")};
    };
    of_float_ = of("float");
    of_half_ = of("half");
    of_bfloat_ = of("bfloat");
  }

  RowLosses CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) override {
    const at::TensorOptions fp32 = logits.options().dtype(at::kFloat);
    RowLosses found = {at::empty({logits.size(0)}, fp32), at::empty({logits.size(0)}, fp32)};
    Launch(Of(logits).cross_entropy, {Unsigned(logits.size(0))}, {kRowThreads},
           logits.const_data_ptr(), targets.const_data_ptr(), logits.size(1),
           found.log_sums.mutable_data_ptr(), found.losses.mutable_data_ptr(), IsWide(logits));
    return found;
  }

  at::Tensor CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                  const at::Tensor& log_sums, const at::Tensor& scales) override {
    at::Tensor gradient = at::empty_like(logits);
    Launch(Of(logits).cross_entropy_gradient, {Unsigned(logits.size(0))}, {kRowThreads},
           logits.const_data_ptr(), targets.const_data_ptr(), logits.size(1),
           log_sums.const_data_ptr(), scales.const_data_ptr(), gradient.mutable_data_ptr(),
           IsWide(logits) && IsWide(gradient));
    return gradient;
  }

  at::Tensor SumRows(const at::Tensor& rows) override {
    return WithSums(rows, IsWide(rows), Of(rows).sum_rows, rows.const_data_ptr()).sums;
  }

  at::Tensor Gelu(const at::Tensor& x) override {
    at::Tensor y = at::empty_like(x);
    const bool wide = IsWide(x) && IsWide(y);
    const int64_t packs = x.numel() / (wide ? PackedColumns(x) : 1);
    Launch(Of(x).gelu, {Unsigned(DividedUp(packs, kRowThreads * kAtOnce))}, {kRowThreads},
           x.const_data_ptr(), x.numel(), y.mutable_data_ptr(), wide);
    return y;
  }

  RowsAndSums GradientOfGelu(const at::Tensor& gradient, const at::Tensor& x) override {
    const at::Tensor by_x = at::empty_like(x);
    return WithSums(by_x, IsWide(gradient) && IsWide(x) && IsWide(by_x), Of(x).gelu_gradient,
                    gradient.const_data_ptr(), x.const_data_ptr(), by_x.mutable_data_ptr());
  }

  RowsAndSums JoinThirds(const std::array<at::Tensor, 3>& thirds) override {
    const auto& [first, second, third] = thirds;
    const at::Tensor all = at::empty({first.size(0), 3 * first.size(1)}, first.options());
    const bool wide = std::ranges::all_of(thirds, &IsWide) && IsWide(all);
    return WithSums(all, wide, Of(all).join_thirds, first.const_data_ptr(), second.const_data_ptr(),
                    third.const_data_ptr(), all.mutable_data_ptr());
  }

  bool HasLayerNorm(const at::Tensor& rows) const override {
    return IsWide(rows) && rows.size(1) <= kMaxPacks * kWarp * PackedColumns(rows);
  }

  Normalized LayerNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                       const at::Tensor& bias, double epsilon) override {
    const at::TensorOptions fp32 = x.options().dtype(at::kFloat);
    const at::Tensor other = Wide(branch), w = Wide(weight), b = Wide(bias);
    Normalized found = {branch.defined() ? at::empty_like(x) : x, at::empty_like(x),
                        at::empty({x.size(0)}, fp32), at::empty({x.size(0)}, fp32)};
    Launch(Norm(x).forward, {Unsigned(DividedUp(x.size(0), kNormRows))}, {kWarp, kNormRows},
           x.const_data_ptr(), Pointer(other), w.const_data_ptr(), b.const_data_ptr(), x.size(0),
           static_cast<float>(epsilon), found.sums.mutable_data_ptr(),
           found.normalized.mutable_data_ptr(), found.means.mutable_data_ptr(),
           found.inverse_deviations.mutable_data_ptr());
    return found;
  }

  LayerNormGradients GradientsOfLayerNorm(const at::Tensor& gradient,
                                          const at::Tensor& sum_gradient, const Normalized& forward,
                                          const at::Tensor& weight) override {
    const at::Tensor& x = forward.sums;
    const int64_t blocks =
        std::min(kNormBlocksPerProcessor * processors_, DividedUp(x.size(0), kNormRows));
    const at::Tensor own = Wide(gradient), more = Wide(sum_gradient), w = Wide(weight);
    const at::Tensor by_x = at::empty_like(x);
    const at::Tensor parts = at::empty({2, blocks, x.size(1)}, x.options().dtype(at::kFloat));
    const at::Tensor of_weight = parts[0], of_bias = parts[1];
    Launch(Norm(x).gradients, {Unsigned(blocks)}, {kWarp, kNormRows}, own.const_data_ptr(),
           Pointer(more), x.const_data_ptr(), w.const_data_ptr(), forward.means.const_data_ptr(),
           forward.inverse_deviations.const_data_ptr(), x.size(0), by_x.mutable_data_ptr(),
           of_weight.mutable_data_ptr(), of_bias.mutable_data_ptr());
    const at::Tensor sums = Finish(parts, x);
    return {by_x, sums[0], sums[1]};
  }

 private:
  static unsigned Unsigned(int64_t number) { return static_cast<unsigned>(number); }
  static const void* Pointer(const at::Tensor& tensor) {
    return tensor.defined() ? tensor.const_data_ptr() : nullptr;
  }
  // `tensor` as it is or copied to where a wide load may begin: it may be a part of another one.
  static at::Tensor Wide(const at::Tensor& tensor) {
    return !tensor.defined() || IsWide(tensor) ? tensor : tensor.clone();
  }

  // Blocks over the columns, and over parts of the rows.
  dim3 ColumnGrid(const at::Tensor& rows, bool wide) const {
    const int64_t across =
        DividedUp(rows.size(1), kColumnThreads * (wide ? PackedColumns(rows) : 1));
    const int64_t down = std::clamp<int64_t>(kBlocksPerProcessor * processors_ / across, 1,
                                             DividedUp(rows.size(0), kColumnRows));
    return {Unsigned(across), Unsigned(down)};
  }

  // `rows`, which `kernel` makes of what the pointers name, and the sums over them.
  template <typename... Pointers>
  RowsAndSums WithSums(const at::Tensor& rows, bool wide, cudaKernel_t kernel,
                       Pointers... pointers) const {
    const dim3 grid = ColumnGrid(rows, wide);
    const at::Tensor parts = at::empty({1, grid.y, rows.size(1)}, rows.options().dtype(at::kFloat));
    Launch(kernel, grid, {kColumnThreads, kColumnRows}, pointers..., rows.size(0), rows.size(1),
           parts.mutable_data_ptr(), wide);
    return {rows, Finish(parts, rows)[0]};
  }

  // [matrices, rows, columns] -> [matrices, columns], in the type of `like`
  at::Tensor Finish(const at::Tensor& parts, const at::Tensor& like) const {
    at::Tensor sums = at::empty({parts.size(0), parts.size(2)}, like.options());
    Launch(Of(like).finish,
           {Unsigned(DividedUp(parts.size(2), kColumnThreads)), Unsigned(parts.size(0))},
           {kColumnThreads, kFinishRows}, parts.const_data_ptr(), parts.size(1), parts.size(2),
           sums.mutable_data_ptr());
    return sums;
  }

  const LayerNormKernels& Norm(const at::Tensor& x) {
    const std::lock_guard lock(mutex_);
    LayerNormKernels& kernels = norms_[{x.scalar_type(), x.size(1)}];
    if (kernels.forward == nullptr) {
      std::vector<std::string> options = options_;
      options.push_back("--define-macro=DSLAUNCH_ELEMENT=" + NameOf(x.scalar_type()));
      options.push_back("--define-macro=DSLAUNCH_COLUMNS=" + std::to_string(x.size(1)));
      cudaLibrary_t library = Load("layer_norm_kernels.cu", kLayerNormKernels, options);
      kernels = {Kernel(library, "layer_norm"), Kernel(library, "layer_norm_gradients")};
    }
    return kernels;
  }

  // It stays loaded.
  cudaLibrary_t Load(const char* name, const char* source,
                     const std::vector<std::string>& options) const {
    const std::vector<char> cubin = nvrtc_.Compile(name, source, options);
    cudaLibrary_t library = nullptr;
    C10_CUDA_CHECK(
        cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    return library;
  }
  static cudaKernel_t Kernel(cudaLibrary_t library, const std::string& name) {
    cudaKernel_t found = nullptr;
    C10_CUDA_CHECK(cudaLibraryGetKernel(&found, library, name.c_str()));
    return found;
  }

  const RowKernels& Of(const at::Tensor& rows) const {
    switch (rows.scalar_type()) {
      case at::kHalf:
        return of_half_;
      case at::kBFloat16:
        return of_bfloat_;
      default:
        return of_float_;
    }
  }
  template <typename... Arguments>
  static void Launch(cudaKernel_t kernel, dim3 grid, dim3 block, Arguments... arguments) {
    std::array<void*, sizeof...(arguments)> pointers = {&arguments...};
    C10_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block,
                                    pointers.data(), 0, c10::cuda::getCurrentCUDAStream()));
  }

  const Nvrtc nvrtc_;
  int64_t processors_ = 0;
  std::vector<std::string> options_;
  RowKernels of_float_ = {}, of_half_ = {}, of_bfloat_ = {};
  std::mutex mutex_;
  std::map<std::pair<at::ScalarType, int64_t>, LayerNormKernels> norms_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<FusedKernels> MakeCudaKernels(int index) {
  return std::make_unique<CudaKernels>(index);
}

}  // namespace dslaunch
