#include "agent/host/restart_verdict.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <vector>

#include "base/text/sanitize.h"
#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxRestartLineBytes = 400;

constexpr auto kCan = pb::Cause::RESTART_CAN_HELP;
constexpr auto kCannot = pb::Cause::RESTART_CANNOT_HELP;
constexpr auto kUnknown = pb::Cause::RESTART_UNKNOWN;

// A verdict on failures whose output has a line that contains `text`.
struct TextRule {
  std::string_view text;
  pb::Cause::Restart restart;
  const char* reason;
};

constexpr char kGpuFailed[] = "a GPU or its connection failed";
constexpr char kNetwork[] = "a network connection failed";
constexpr char kService[] = "a service did not answer, or refused for now";
constexpr char kStorage[] = "the storage failed for a moment";
constexpr char kPort[] = "a port was in use; the next start gets another";
constexpr char kDiskFull[] = "the disk is full, or the quota is used up";
constexpr char kInstallation[] = "the installed software does not fit";
constexpr char kNoDevice[] = "the node lacks the device that the program wants";
constexpr char kCommandLine[] = "the program does not know its arguments";
constexpr char kShapes[] = "shapes, types or devices of tensors do not fit";
constexpr char kIndex[] = "an index is beyond its range";
constexpr char kCheckpoint[] = "the checkpoint does not fit the model";
constexpr char kAccess[] = "access is denied";
constexpr char kSetup[] = "the ranks are set up wrongly";
constexpr char kModel[] = "the program uses its model wrongly";

// The first rule that applies decides. A specific text may appear beside a general text of another
// cause, so rules for causes that a restart can help, or that are unknown, come first.
constexpr TextRule kRestartTexts[] = {
    // Hardware failures.
    {"uncorrectable ECC error", kCan, kGpuFailed},
    {"ECC_UNCORRECTABLE", kCan, kGpuFailed},
    {"has fallen off the bus", kCan, kGpuFailed},
    {"GPU is lost", kCan, kGpuFailed},
    {"NVLink error", kCan, kGpuFailed},
    {"Unable to determine the device handle for GPU", kCan, kGpuFailed},
    {"all CUDA-capable devices are busy or unavailable", kCan, kGpuFailed},
    {"CUDA error: unknown error", kCan, kGpuFailed},
    {"system not yet initialized", kCan, kGpuFailed},
    {"hardware stack error", kCan, kGpuFailed},
    // Failures of the network and of other ranks.
    {"NCCL version mismatch", kCannot, kInstallation},
    {"Duplicate GPU detected", kCannot, kSetup},
    {"ncclInvalidUsage", kCannot, kSetup},
    {"no socket interface found", kCannot, kSetup},
    {"Address already in use", kCan, kPort},
    {"EADDRINUSE", kCan, kPort},
    {"unhandled system error", kCan, kNetwork},
    {"ncclSystemError", kCan, kNetwork},
    {"ncclRemoteError", kCan, kNetwork},
    {"remote process exited or there was a network error", kCan, kNetwork},
    {"caught collective operation timeout", kCan, kNetwork},
    {"Timed out initializing process group", kCan, kNetwork},
    {"client socket has timed out", kCan, kNetwork},
    {"client socket has failed to connect", kCan, kNetwork},
    {"failed to recv, got 0 bytes", kCan, kNetwork},
    {"recvValue failed", kCan, kNetwork},
    {"Socket Timeout", kCan, kNetwork},
    {"Connection reset by peer", kCan, kNetwork},
    {"connection reset by peer", kCan, kNetwork},
    {"Connection closed by", kCan, kNetwork},
    {"Broken pipe", kCan, kNetwork},
    {"No route to host", kCan, kNetwork},
    {"Network is unreachable", kCan, kNetwork},
    {"Connection timed out", kCan, kNetwork},
    {"Connection refused", kCan, kNetwork},
    {"ibv_poll_cq", kCan, kNetwork},
    {"local work queue operation error", kCan, kNetwork},
    {"Got completion from peer", kCan, kNetwork},
    {"got completion with error", kCan, kNetwork},
    {"transport retry counter exceeded", kCan, kNetwork},
    {"Timed out waiting", kCan, kNetwork},
    {"monitoredBarrier", kCan, kNetwork},
    {"HeartbeatMonitor", kCan, kNetwork},
    {"Stop_waiting response is expected", kCan, kNetwork},
    {"Temporary failure in name resolution", kCan, kService},
    // Failures of services and storage.
    {"Read timed out", kCan, kService},
    {"ReadTimeout", kCan, kService},
    {"ConnectTimeout", kCan, kService},
    {"Max retries exceeded", kCan, kService},
    {"RemoteDisconnected", kCan, kService},
    {"IncompleteRead", kCan, kService},
    {"ProtocolError", kCan, kService},
    {"Too Many Requests", kCan, kService},
    {"Service Unavailable", kCan, kService},
    {"Bad Gateway", kCan, kService},
    {"Gateway Time-out", kCan, kService},
    {"Gateway Timeout", kCan, kService},
    {"Internal Server Error", kCan, kService},
    {"SlowDown", kCan, kService},
    {"SSLEOFError", kCan, kService},
    {"UNEXPECTED_EOF_WHILE_READING", kCan, kService},
    {"Stale file handle", kCan, kStorage},
    {"Input/output error", kUnknown, ""},
    {"Transport endpoint is not connected", kCan, kStorage},
    {"Cannot send after transport endpoint shutdown", kCan, kStorage},
    // Unknown causes: lack of memory, and errors that a bug, a driver or hardware may have caused.
    {"out of memory", kUnknown, ""},
    {"OutOfMemoryError", kUnknown, ""},
    {"Cannot allocate memory", kUnknown, ""},
    {"can't allocate memory", kUnknown, ""},
    {"bad_alloc", kUnknown, ""},
    {"MemoryError", kUnknown, ""},
    {"DataLoader worker", kUnknown, ""},
    {"illegal memory access", kUnknown, ""},
    {"unspecified launch failure", kUnknown, ""},
    {"misaligned address", kUnknown, ""},
    {"an illegal instruction was encountered", kUnknown, ""},
    {"unhandled cuda error", kUnknown, ""},
    {"CUBLAS_STATUS", kUnknown, ""},
    {"CUDNN_STATUS", kUnknown, ""},
    {"NaN", kUnknown, ""},
    {"Too many open files", kUnknown, ""},
    {"Resource temporarily unavailable", kUnknown, ""},
    {"PytorchStreamReader", kUnknown, ""},
    {"unexpected EOF", kUnknown, ""},
    {"Ran out of input", kUnknown, ""},
    {"File exists", kUnknown, ""},
    {"FileExistsError", kUnknown, ""},
    {"Text file busy", kUnknown, ""},
    {"Device or resource busy", kUnknown, ""},
    // Causes that the next start finds unchanged.
    {"No space left on device", kCannot, kDiskFull},
    {"Disk quota exceeded", kCannot, kDiskFull},
    {"Read-only file system", kCannot, kDiskFull},
    {"StorageFull", kCannot, kDiskFull},
    {"No module named", kCannot, kInstallation},
    {"cannot import name", kCannot, kInstallation},
    {"undefined symbol", kCannot, kInstallation},
    {"cannot open shared object file", kCannot, kInstallation},
    {"' not found (required by", kCannot, kInstallation},
    {"no kernel image is available", kCannot, kInstallation},
    {"invalid device function", kCannot, kInstallation},
    {"CUDA driver version is insufficient", kCannot, kInstallation},
    {"The NVIDIA driver on your system is too old", kCannot, kInstallation},
    {"not compiled with CUDA enabled", kCannot, kInstallation},
    {"not compiled with NCCL", kCannot, kInstallation},
    {"Distributed package doesn't have NCCL built in", kCannot, kInstallation},
    {"requires the following packages that were not found", kCannot, kInstallation},
    {"A module that was compiled using NumPy", kCannot, kInstallation},
    {"numpy.dtype size changed", kCannot, kInstallation},
    {"Found no NVIDIA driver", kCannot, kNoDevice},
    {"no CUDA-capable device is detected", kCannot, kNoDevice},
    {"No CUDA GPUs are available", kCannot, kNoDevice},
    {"invalid device ordinal", kCannot, kNoDevice},
    {"torch.cuda.is_available() is False", kCannot, kNoDevice},
    {"FlashAttention only supports", kCannot, kNoDevice},
    {"unrecognized arguments:", kCannot, kCommandLine},
    {"the following arguments are required", kCannot, kCommandLine},
    {": error: argument ", kCannot, kCommandLine},
    {"invalid choice:", kCannot, kCommandLine},
    {"can't open file", kCannot, "the program's file is not there"},
    {"No such file or directory", kCannot, "a file is not there"},
    {"Permission denied", kCannot, kAccess},
    {"401 Client Error", kCannot, kAccess},
    {"403 Client Error", kCannot, kAccess},
    {"404 Client Error", kCannot, "a file or repository is not there"},
    {"GatedRepoError", kCannot, kAccess},
    {"RepositoryNotFoundError", kCannot, "a file or repository is not there"},
    {"Error(s) in loading state_dict", kCannot, kCheckpoint},
    {"size mismatch for", kCannot, kCheckpoint},
    {"Missing key(s) in state_dict", kCannot, kCheckpoint},
    {"doesn't match the size of optimizer's group", kCannot, kCheckpoint},
    {"loaded state dict contains a parameter group", kCannot, kCheckpoint},
    {"device-side assert triggered", kCannot, kIndex},
    {"index out of range in self", kCannot, kIndex},
    {"index out of bounds", kCannot, kIndex},
    {"is out of bounds", kCannot, kIndex},
    {"shapes cannot be multiplied", kCannot, kShapes},
    {"must match the size of tensor", kCannot, kShapes},
    {"to match target batch_size", kCannot, kShapes},
    {"Expected all tensors to be on the same device", kCannot, kShapes},
    {"Input type (", kCannot, kShapes},
    {"expected scalar type", kCannot, kShapes},
    {"must have the same dtype", kCannot, kShapes},
    {"is invalid for input of size", kCannot, kShapes},
    {"stack expects each tensor to be equal size", kCannot, kShapes},
    {"Sizes of tensors must match", kCannot, kShapes},
    {"Given groups=", kCannot, kShapes},
    {"element 0 of tensors does not require grad", kCannot, kModel},
    {"has been modified by an inplace operation", kCannot, kModel},
    {"backward through the graph a second time", kCannot, kModel},
    {"Expected to have finished reduction in the prior iteration", kCannot, kModel},
    {"mark a variable ready only once", kCannot, kModel},
    {"Default process group has not been initialized", kCannot, kSetup},
    {"expected, but not set", kCannot, kSetup},
    {"is not divisible by", kCannot, "numbers of the configuration do not fit"},
    {"DeepSpeedConfigError", kCannot, "the configuration is wrong"},
    {"Check batch related parameters", kCannot, "the configuration is wrong"},
    {"validation error for", kCannot, "the configuration is wrong"},
    {"validation errors for", kCannot, "the configuration is wrong"},
};

// Python exceptions whose cause is in the program, its data or its configuration.
constexpr std::string_view kPermanentExceptions[] = {
    "ModuleNotFoundError",
    "ImportError",
    "SyntaxError",
    "IndentationError",
    "TabError",
    "NameError",
    "UnboundLocalError",
    "AttributeError",
    "TypeError",
    "KeyError",
    "IndexError",
    "ValueError",
    "AssertionError",
    "ZeroDivisionError",
    "NotImplementedError",
    "FileNotFoundError",
    "PermissionError",
    "NotADirectoryError",
    "IsADirectoryError",
    "RecursionError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "OverflowError",
    "ArgumentError",
    "ConfigurationError",
    "ValidationError",
    "ParserError",
    "ScannerError",
    "JSONDecodeError",
};

// Exceptions of Python libraries whose cause is outside the program.
constexpr std::string_view kTransientExceptions[] = {
    "TimeoutError",           "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError",
    "ConnectionAbortedError", "ConnectionError",      "DistNetworkError",       "DistStoreError",
    "IncompleteReadError",    "ServerTimeoutError",   "ChunkedEncodingError",   "ReadTimeoutError",
};

// Returns the name of the exception that the line reports, without its module, such as "KeyError"
// for "torch.x.KeyError: 'a'". Returns an empty text if the line reports no exception.
std::string_view ExceptionName(std::string_view line) {
  std::string_view name = line.substr(0, line.find(':'));
  const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
  if (!is_name) return {};
  // The whole name if it has no dot, because npos + 1 is 0.
  return name.substr(name.rfind('.') + 1);
}

RestartVerdict Verdict(pb::Cause::Restart restart, const char* reason, std::string_view line) {
  if (restart == kUnknown) return {};
  return {restart, reason, Truncate(SanitizeForTerminal(line), kMaxRestartLineBytes)};
}

const TextRule* FindText(std::string_view line) {
  const auto found = std::ranges::find_if(kRestartTexts, [&](const TextRule& rule) {
    return line.find(rule.text) != std::string_view::npos;
  });
  return found == std::end(kRestartTexts) ? nullptr : &*found;
}

std::optional<RestartVerdict> JudgeOwnError(std::string_view line) {
  if (const TextRule* const rule = FindText(line))
    return Verdict(rule->restart, rule->reason, line);
  const std::string_view name = ExceptionName(line);
  if (std::ranges::count(kTransientExceptions, name) > 0) return Verdict(kCan, kNetwork, line);
  if (std::ranges::count(kPermanentExceptions, name) > 0)
    return Verdict(kCannot, "the error is in the program, its data or its configuration", line);
  return std::nullopt;
}

}  // namespace

RestartVerdict JudgeRestart(int signal, std::string_view last_lines, std::string_view evidence,
                            bool victim) {
  if (victim) return Verdict(kCan, kNetwork, evidence);
  const bool has_own_error = signal == 0 || signal == SIGABRT;
  if (has_own_error && !evidence.empty()) {
    if (const auto verdict = JudgeOwnError(evidence)) return *verdict;
  }
  const std::vector<std::string_view> lines = SplitLines(last_lines);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const TextRule* const rule = FindText(*line);
    if (rule == nullptr) continue;
    // A signal ended the program, so its output cannot prove that a restart is useless.
    if (!has_own_error && rule->restart == kCannot) continue;
    return Verdict(rule->restart, rule->reason, *line);
  }
  return {};
}

}  // namespace dslaunch
