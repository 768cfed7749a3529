#include "trainer/cuda/cuda_kernels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trainer/cuda/kernel_calls.h"

namespace dslaunch {
namespace {

// Sources of the kernels, which CMakeLists.txt converts to raw strings.
constexpr char kInstructions[] =
#include "trainer/cuda/instructions.inc"
    ;
constexpr char kCommon[] =
#include "trainer/cuda/common.inc"
    ;
constexpr char kRowKernels[] =
#include "trainer/cuda/row_kernels.inc"
    ;
constexpr char kDecoderKernels[] =
#include "trainer/cuda/decoder_kernels.inc"
    ;
constexpr char kNormRows[] =
#include "trainer/cuda/norm_rows.inc"
    ;
constexpr char kLayerNormKernels[] =
#include "trainer/cuda/layer_norm_kernels.inc"
    ;
constexpr char kRmsNormKernels[] =
#include "trainer/cuda/rms_norm_kernels.inc"
    ;

// Calls the functions of NVRTC. The trainer must also work without this library, so it is opened at
// run time. LibTorch's CUDA runtime does not include NVRTC's header.
class Nvrtc {
 public:
  Nvrtc() : library_(dlopen(kLibrary.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    TORCH_CHECK(library_ != nullptr, dlerror());
  }

  // Compiles `kernels` with the shared code to a cubin. `name` is used in messages, and `options`
  // are NVRTC's options.
  std::vector<char> Compile(const char* name, const std::string& kernels,
                            const std::vector<std::string>& options) const {
    const std::string source = std::string(kInstructions) + kCommon + kernels;
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

  void* const library_;  // handle of the library from dlopen; never closed
};

// Returns the name of a type in the kernels' sources, or the suffix of the names of its kernels.
const char* NameOf(at::ScalarType type) {
  return type == at::kHalf ? "Half" : type == at::kBFloat16 ? "Bfloat" : "float";
}
const char* SuffixOf(at::ScalarType type) {
  return type == at::kHalf ? "_half" : type == at::kBFloat16 ? "_bfloat" : "_float";
}

const cudaDeviceProp& PropertiesOf(int index) {
  return *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
}

class CudaKernels : public KernelCalls {
 public:
  explicit CudaKernels(int index) : KernelCalls(PropertiesOf(index).multiProcessorCount) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    const cudaDeviceProp& device = PropertiesOf(index);
    options_ = {"--gpu-architecture=sm_" + std::to_string(10 * device.major + device.minor),
                "--std=c++17"};
    AddForAllTypes("row_kernels.cu", kRowKernels,
                   {"cross_entropy", "cross_entropy_gradient", "sum_rows", "finish", "gelu",
                    "gelu_gradient", "join_thirds"});
    AddForAllTypes("decoder_kernels.cu", kDecoderKernels, {"rotate", "swiglu", "swiglu_gradients"});
  }

 protected:
  void Launch(const KernelVersion& kernel, KernelGrid blocks, KernelGrid threads,
              void** arguments) override {
    C10_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(Find(kernel)),
                                    {blocks.x, blocks.y}, {threads.x, threads.y}, arguments, 0,
                                    c10::cuda::getCurrentCUDAStream()));
  }

 private:
  // Name, type and number of columns of a kernel, which determine the number of warps.
  using Key = std::tuple<std::string_view, at::ScalarType, int64_t>;

  void AddForAllTypes(const char* file, const char* source,
                      std::initializer_list<const char*> names) {
    cudaLibrary_t library = Load(file, source, options_);
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const char* const name : names) {
        kernels_[{name, type, 0}] = Kernel(library, std::string(name) + SuffixOf(type));
      }
    }
  }

  cudaKernel_t Find(const KernelVersion& version) {
    const std::lock_guard lock(mutex_);
    const Key key = {version.name, version.type, version.columns};
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second;
    const bool is_rms = std::string_view(version.name).starts_with("rms_norm");
    std::vector<std::string> options = options_;
    options.push_back(std::string("--define-macro=DSLAUNCH_ELEMENT=") + NameOf(version.type));
    options.push_back("--define-macro=DSLAUNCH_COLUMNS=" + std::to_string(version.columns));
    options.push_back("--define-macro=DSLAUNCH_WARPS=" + std::to_string(version.row_warps));
    cudaLibrary_t library =
        Load(is_rms ? "rms_norm_kernels.cu" : "layer_norm_kernels.cu",
             std::string(kNormRows) + (is_rms ? kRmsNormKernels : kLayerNormKernels), options);
    for (const char* const name : is_rms ? std::array{"rms_norm", "rms_norm_gradients"}
                                         : std::array{"layer_norm", "layer_norm_gradients"}) {
      kernels_[{name, version.type, version.columns}] = Kernel(library, name);
    }
    return kernels_.at(key);
  }

  // Compiles and loads a library of kernels, which is never unloaded.
  cudaLibrary_t Load(const char* name, const std::string& source,
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

  const Nvrtc nvrtc_;
  std::vector<std::string> options_;
  std::mutex mutex_;
  // Loaded kernels, guarded by mutex_; the names are string literals.
  std::map<Key, cudaKernel_t> kernels_;
};

}  // namespace

std::unique_ptr<FusedKernels> MakeCudaKernels(int index) {
  return std::make_unique<CudaKernels>(index);
}

}  // namespace dslaunch
