#include "cli/transport/agent_copy.h"

#include <fcntl.h>
#include <zlib.h>

#include <cerrno>
#include <map>
#include <vector>

#include "base/digest/sha256.h"
#include "base/errno_text.h"
#include "base/os/ownership.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr char kMagic[] = "DSLAUNCH-COPY ";
constexpr size_t kMaxAgentBytes = 1 << 30;
constexpr size_t kPieceBytes = 64 << 10;
constexpr int kGzipWindow = 15 + 16;  // zlib's window argument for the gzip format
constexpr int kMemoryLevel = 8;       // zlib's default memory level

Result<UniqueFd> OpenAgent(const AgentBinary& agent) {
  UniqueFd file(::open(agent.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) return file;
  return Error{ExitCode::kIo, "cannot open " + Truncate(agent.path) + ": " + ErrnoText(errno)};
}

// Reads the next piece of the agent's file into `piece`. Returns an empty string at the end of the
// file.
Result<std::string_view> ReadPiece(const UniqueFd& file, const AgentBinary& agent,
                                   std::vector<char>& piece) {
  ssize_t size = 0;
  do {
    size = ::read(file.get(), piece.data(), piece.size());
  } while (size < 0 && errno == EINTR);
  if (size >= 0) return std::string_view(piece.data(), static_cast<size_t>(size));
  return Error{ExitCode::kIo, "cannot read " + Truncate(agent.path) + ": " + ErrnoText(errno)};
}

Result<std::shared_ptr<const PackedAgent>> Pack(const AgentBinary& agent) {
  DSL_TRY_ASSIGN(const UniqueFd file, OpenAgent(agent));
  z_stream stream{};
  // Level 3 is three times as fast as the default level, and its output is only 4% larger.
  if (::deflateInit2(&stream, 3, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    return Error{ExitCode::kInternal, "zlib cannot be started"};
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, &::deflateEnd);
  auto packed = std::make_shared<PackedAgent>();
  Sha256 sum;
  std::vector<char> piece(kPieceBytes);
  std::vector<char> out(kPieceBytes);
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    DSL_TRY_ASSIGN(const std::string_view bytes, ReadPiece(file, agent, piece));
    sum.Add(bytes);
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      status = ::deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
      if (status == Z_STREAM_ERROR)
        return Error{ExitCode::kInternal, "zlib cannot compress " + Truncate(agent.path)};
      packed->gzip.append(out.data(), out.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  packed->gzip.shrink_to_fit();
  packed->sha256 = ToHex(sum.Finish());
  return std::shared_ptr<const PackedAgent>(std::move(packed));
}

Result<std::shared_ptr<const std::string>> ReadRaw(const AgentBinary& agent) {
  DSL_TRY_ASSIGN(const UniqueFd file, OpenAgent(agent));
  DSL_TRY_ASSIGN(std::string bytes, ReadAll(file, agent.path, kMaxAgentBytes));
  return std::make_shared<const std::string>(std::move(bytes));
}

// Calls `make` once for each build in this process and shares the result.
template <class Made>
class OncePerBuild {
 public:
  Result<std::shared_ptr<const Made>> Get(
      const AgentBinary& agent, Result<std::shared_ptr<const Made>> (*make)(const AgentBinary&)) {
    const MutexLock lock(mutex_);
    std::shared_ptr<const Made>& known = by_build_id_[agent.build_id];
    if (!known) {
      DSL_TRY_ASSIGN(known, make(agent));
    }
    return known;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const Made>> by_build_id_ DSL_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<const PackedAgent>> PackAgent(const AgentBinary& agent) {
  static OncePerBuild<PackedAgent> builds;
  return builds.Get(agent, &Pack);
}

Result<std::shared_ptr<const std::string>> RawAgent(const AgentBinary& agent) {
  static OncePerBuild<std::string> builds;
  return builds.Get(agent, &ReadRaw);
}

CopyDialog::CopyDialog(std::string_view nonce) : prefix_(kMagic + std::string(nonce) + ' ') {}

CopyDialog::State CopyDialog::Feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (state_ != State::kWaiting) break;
    if (c != '\n') {
      if (line_.size() == kMaxLineBytes) line_.erase(0, kMaxLineBytes / 2);
      line_ += c;
      continue;
    }
    // A prompt without a line end may precede the prefix, so the prefix is searched in the whole
    // line.
    const size_t at = line_.find(prefix_);
    if (at != std::string::npos) {
      const std::string_view word = std::string_view(line_).substr(at + prefix_.size());
      if (word == "gzip") state_ = State::kSendGzip;
      if (word == "raw") state_ = State::kSendRaw;
      if (word == "have") state_ = State::kHave;
    }
    line_.clear();
  }
  return state_;
}

CopyGate::Turn::~Turn() {
  if (gate_ == nullptr) return;
  const MutexLock lock(gate_->mutex_);
  --gate_->running_;
}

CopyGate& CopyGate::Shared() {
  static CopyGate* const gate = new CopyGate;
  return *gate;
}

std::optional<CopyGate::Turn> CopyGate::TryEnter() {
  const MutexLock lock(mutex_);
  if (running_ == kAtOnce) return std::nullopt;
  ++running_;
  return std::make_optional<Turn>(this);
}

}  // namespace dslaunch
