#include "trainer/profile/comms_logger.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "base/deadline.h"
#include "trainer/base/log.h"
#include "trainer/profile/communication.h"

namespace dslaunch {
namespace {

// Guards the pointer to the logger, because exchanges may end while the logger is destroyed.
Mutex current_logger_mutex;
CommsLogger* current_logger DSL_GUARDED_BY(current_logger_mutex) = nullptr;

struct Context : at::ObserverContext {
  std::string kind;
  int64_t bytes = 0;
  Clock::time_point start = Clock::now();
};

}  // namespace

// Callbacks at the beginning and end of an exchange. The backends of c10d record each exchange as a
// user function, which ends when the result is available.
struct CommsLogger::Hooks {
  static std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
    const std::optional<std::string> kind = CommunicationKind(function.name());
    if (!kind) return nullptr;
    auto context = std::make_unique<Context>();
    context->kind = *kind;
    for (const c10::IValue& input : function.inputs()) {
      if (input.isTensor() && input.toTensor().defined()) {
        context->bytes += static_cast<int64_t>(input.toTensor().nbytes());
      }
    }
    return context;
  }

  static void End(const at::RecordFunction&, at::ObserverContext* observed) {
    const auto* context = static_cast<Context*>(observed);
    if (context == nullptr) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - context->start).count();
    const MutexLock lock(current_logger_mutex);
    if (current_logger != nullptr) current_logger->Add(context->kind, context->bytes, seconds);
  }
};

CommsLogger::CommsLogger(const CommsLoggerConfig& config, int rank, int ranks)
    : config_(config), rank_(rank), ranks_(ranks) {
  const MutexLock lock(current_logger_mutex);
  current_logger = this;
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(Hooks::Begin, Hooks::End)
                                      .needsInputs(true)
                                      .scopes({at::RecordScope::USER_SCOPE}));
}

CommsLogger::~CommsLogger() {
  at::removeCallback(handle_);
  const MutexLock lock(current_logger_mutex);
  current_logger = nullptr;
}

void CommsLogger::Add(const std::string& kind, int64_t bytes, double seconds) {
  if (config_.operations && !config_.operations->contains(kind)) return;
  {
    const MutexLock lock(mutex_);
    CommsRow& row = rows_[{kind, bytes}];
    ++row.calls;
    row.seconds += seconds;
  }
  if (config_.verbose && rank_ == 0) PrintLine(CommsLine(kind, bytes, seconds, ranks_));
}

std::string CommsLogger::Table() const {
  const MutexLock lock(mutex_);
  return CommsTable(rows_, ranks_);
}

}  // namespace dslaunch
