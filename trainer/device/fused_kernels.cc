#include "trainer/device/fused_kernels.h"

#include <cstdlib>
#include <future>
#include <string>

#include "base/text/sanitize.h"
#include "trainer/base/log.h"

namespace dslaunch {
namespace {

struct Started {
  c10::Device device = c10::kCPU;
  std::shared_future<std::shared_ptr<FusedKernels>> kernels;
};

// Returns the kernels of this process. They are started before other threads compute.
Started& OfThisProcess() {
  // Threads may use the kernels until the process ends, so they are never destroyed.
  static auto* const started = new Started;
  return *started;
}

}  // namespace

void StartFusedKernels(c10::Device device, bool reports_error,
                       std::function<std::unique_ptr<FusedKernels>()> make) {
  const auto guarded = [reports_error, make = std::move(make)]() -> std::shared_ptr<FusedKernels> {
    try {
      return make();
    } catch (const c10::Error& error) {
      if (reports_error) {
        PrintLine(
            "steps will be slower than they could be: the trainer's own kernels cannot be "
            "compiled for this GPU: " +
            SanitizeForTerminal(error.what_without_backtrace()));
      }
      return nullptr;
    }
  };
  OfThisProcess() = {device, std::async(std::launch::async, guarded).share()};
  // The libraries that the thread uses must not be unloaded earlier, so the process waits for the
  // thread at exit.
  std::atexit([] { OfThisProcess().kernels.wait(); });
}

FusedKernels* FusedKernelsFor(const at::Tensor& rows) {
  const Started& started = OfThisProcess();
  if (rows.device() != started.device || !started.kernels.valid()) return nullptr;
  const at::ScalarType type = rows.scalar_type();
  const bool fits = (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) &&
                    rows.is_contiguous() && rows.numel() > 0;
  return fits ? started.kernels.get().get() : nullptr;
}

}  // namespace dslaunch
