#include "agent/host/nvml.h"

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace dslaunch {
namespace {

// The part of NVML's interface that is used, which has not changed since version 5 of 2013.
using NvmlResult = int;
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
constexpr NvmlResult kSuccess = 0;

class Nvml {
 public:
  explicit Nvml(const std::string& library)
      : handle_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {}

  bool is_there() const { return handle_ != nullptr; }

  pb::Gpus Read() {
    pb::Gpus gpus;
    if (Fails(gpus, "nvmlInit_v2", Call("nvmlInit_v2"))) return gpus;
    gpus.set_driver(Text("nvmlSystemGetDriverVersion"));
    int cuda = 0;
    if (Call("nvmlSystemGetCudaDriverVersion_v2", &cuda) == kSuccess)
      gpus.set_cuda(std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10));
    unsigned count = 0;
    if (Fails(gpus, "nvmlDeviceGetCount_v2", Call("nvmlDeviceGetCount_v2", &count))) return gpus;
    for (unsigned i = 0; i < count; ++i) ReadDevice(i, gpus);
    Call("nvmlShutdown");
    return gpus;
  }

 private:
  // -1 when the library lacks the function.
  template <class... Arguments>
  NvmlResult Call(const char* function, Arguments... arguments) {
    void* const symbol = ::dlsym(handle_, function);
    if (symbol == nullptr) return -1;
    return reinterpret_cast<NvmlResult (*)(Arguments...)>(symbol)(arguments...);
  }

  template <class... Handle>
  std::string Text(const char* function, Handle... handle) {
    char text[96] = "";
    if (Call(function, handle..., static_cast<char*>(text), static_cast<unsigned>(sizeof text)) !=
        kSuccess)
      return "";
    text[sizeof text - 1] = '\0';
    return text;
  }

  bool Fails(pb::Gpus& gpus, const std::string& what, NvmlResult result) {
    if (result == kSuccess) return false;
    std::string why = "error " + std::to_string(result);
    if (result == -1) {
      why = "it has no such function";
    } else if (void* const symbol = ::dlsym(handle_, "nvmlErrorString")) {
      why = reinterpret_cast<const char* (*)(NvmlResult)>(symbol)(result);
    }
    gpus.set_trouble(what + ": " + why);
    return true;
  }

  void ReadDevice(unsigned index, pb::Gpus& gpus) {
    NvmlDevice device = nullptr;
    const std::string what = "GPU " + std::to_string(index);
    if (Fails(gpus, what, Call("nvmlDeviceGetHandleByIndex_v2", index, &device))) return;
    pb::Gpu& gpu = *gpus.add_installed();
    gpu.set_name(Text("nvmlDeviceGetName", device));
    gpu.set_uuid(Text("nvmlDeviceGetUUID", device));
    NvmlMemory memory;
    if (Fails(gpus, what, Call("nvmlDeviceGetMemoryInfo", device, &memory))) return;
    gpu.set_memory_bytes(memory.total);
    gpu.set_memory_used_bytes(memory.used);
  }

  void* const handle_;  // never closed: the driver may have started threads
};

}  // namespace

pb::Gpus ReadGpus(const std::string& library, milliseconds patience) {
  auto promise = std::make_shared<std::promise<pb::Gpus>>();
  std::future<pb::Gpus> answer = promise->get_future();
  std::thread([library, promise] {
    Nvml nvml(library);
    promise->set_value(nvml.is_there() ? nvml.Read() : pb::Gpus());
  }).detach();
  if (answer.wait_for(patience) == std::future_status::ready) return answer.get();
  pb::Gpus gpus;
  gpus.set_trouble("the driver does not answer");
  return gpus;
}

}  // namespace dslaunch
