#include "tests/fuzz/hostile_streams.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/rank_progress.h"
#include "agent/flight/flight_record.h"
#include "agent/host/failure_evidence.h"
#include "agent/host/interpreter.h"
#include "agent/host/logout.h"
#include "agent/host/oom.h"
#include "agent/host/restart_verdict.h"
#include "agent/host/script_options.h"
#include "agent/host/shell_environment.h"
#include "agent/logs/job_logs.h"
#include "agent/logs/log_keeping.h"
#include "agent/logs/log_tail.h"
#include "agent/probe/device_bench.h"
#include "agent/probe/gpu_health.h"
#include "agent/stacks/python_stack.h"
#include "agent/stacks/thread_states.h"
#include "agent/supervisor/cgroup.h"
#include "agent/supervisor/serving_process.h"
#include "agent/supervisor/supervisor_status.h"
#include "base/os/own_cgroup.h"
#include "base/os/process_tree.h"
#include "base/os/usable_cores.h"
#include "base/unique_fd.h"
#include "cli/output/line_folder.h"
#include "cli/output/progress_view.h"
#include "cli/output/terminal.h"
#include "cli/transport/hello.h"
#include "net/resumable/resumable_core.h"
#include "net/resumable/resume_words.h"
#include "proto/contract/line_assembler.h"
#include "proto/contract/line_tag.h"
#include "proto/contract/status_line.h"
#include "proto/wire/framed_socket.h"
#include "proto/wire/job_result.h"
#include "proto/wire/rank_stacks.h"
#include "rendezvous/flight_judgement.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/requirement.h"
#include "tests/stacks/memory_image.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

using std::chrono::milliseconds;

constexpr char kNonce[] = "0123456789abcdef0123456789abcdef";

void RequireSanitized(std::string_view text) {
  Require(text.find('\x1b') == std::string_view::npos, "an escape sequence is left");
  const auto is_control = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  };
  Require(std::ranges::none_of(text, is_control), "a control character is left");
  Require(SanitizeForTerminal(text) == text, "what was made harmless is not");
}

}  // namespace

// The first byte of the input is the size of the pieces.
bool FindsHello(const std::string& bytes) {
  Input input(bytes);
  const size_t piece = 1 + input.Below(64);
  const std::string_view stream = input.Rest();
  HelloScanner whole(kNonce);
  HelloScanner cut(kNonce);
  const HelloScanner::State state = whole.Feed(stream);
  HelloScanner::State cut_state = HelloScanner::State::kNeedMore;
  std::string_view rest = stream;
  while (!rest.empty() && cut_state == HelloScanner::State::kNeedMore) {
    cut_state = cut.Feed(rest.substr(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
  }
  Require(state == cut_state, "what is found depends on where the stream is cut");
  for (const HelloScanner* scanner : {&whole, &cut}) {
    if (const std::string machine = scanner->Machine(); !machine.empty()) RequireOneLine(machine);
    const std::string skipped = scanner->Skipped();
    Require(skipped.size() <= 512 && skipped == SanitizeForTerminal(skipped),
            "noise cannot be shown");
  }
  if (state == HelloScanner::State::kFailed) RequireOneLine(whole.reason());
  if (state != HelloScanner::State::kFound) return false;
  Require(whole.build_id() == cut.build_id(), "a build id depends on where the stream is cut");
  Require(whole.leftover() == cut.leftover() + std::string(rest),
          "bytes behind the hello are lost");
  Require(!whole.build_id().empty() && whole.build_id().size() <= 128, "a build id is none");
  return true;
}

// The first byte of the input is the size of the pieces.
bool ReadsStatusLines(const std::string& bytes) {
  Input input(bytes);
  const size_t piece = 1 + input.Below(64);
  std::string_view rest = input.Rest();
  StatusLines whole;
  StatusLines cut;
  const std::string all = whole.Feed(rest);
  std::string lines;
  for (; !rest.empty(); rest.remove_prefix(std::min(piece, rest.size())))
    lines += cut.Feed(rest.substr(0, piece));
  Require(lines == all, "lines depend on where the stream is cut");

  Clock::time_point now;
  RankProgressTracker tracker;
  ProgressView view(/*live=*/true);
  bool any = false;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    Require(end != std::string::npos && end <= kMaxStatusLineBytes, "a line is not whole");
    const std::optional<StatusLine> status = StatusLine::Parse(lines.substr(0, end));
    lines.erase(0, end + 1);
    if (!status) continue;
    any = true;
    Require(status->step >= 0 && status->total_steps >= 0, "a step is negative");
    const std::string written = status->Format();
    const std::optional<StatusLine> again = StatusLine::Parse(written);
    Require(again && again->event == status->event && again->Format() == written,
            "a status changes when it is handed on");
    now += milliseconds(70);
    tracker.OnStatus(*status, now);
    if (const std::optional<std::string> text = view.Update(*status, now)) RequireOneLine(*text);
    if (const auto report = tracker.Report(3, now))
      Require(report->step() <= INT64_MAX && !report->ended(), "a report is not of the rank");
  }
  return any;
}

// The first two bytes of the input are the size of the pieces, and the number of pieces after which
// the stream stalls.
bool AssemblesLines(const std::string& bytes) {
  Input input(bytes);
  const size_t piece = 1 + input.Below(64);
  const size_t still_after = 1 + input.Below(64);
  std::string_view rest = input.Rest();
  std::string expected(rest);
  std::erase_if(expected, [](char c) { return c == '\n' || c == '\r'; });
  std::string shown;
  const auto sink = [&](std::string_view line) {
    Require(line.size() <= kMaxDisplayLineBytes, "a line is too long");
    Require(line.find_first_of("\r\n") == std::string_view::npos, "a line has an end in it");
    RequireSanitized(SanitizeForTerminal(line));
    Require(WithoutEscapes(line).find('\x1b') == std::string::npos, "an escape sequence is left");
    shown += line;
  };
  LineAssembler lines;
  for (size_t i = 1; !rest.empty(); rest.remove_prefix(std::min(piece, rest.size())), ++i) {
    lines.Append(rest.substr(0, piece), sink);
    if (i % still_after == 0) lines.FlushPartial(sink);
  }
  lines.Finish(sink);
  Require(shown == expected, "output is lost or made up");
  return true;
}

bool FoldsLines(const std::string& bytes) {
  Input input(bytes);
  const size_t ranks = 1 + input.Below(5);
  LineFolder folder;
  folder.SetRanks(ranks);
  std::map<int, std::vector<std::string>> wrote;
  std::map<int, std::vector<std::string>> shown;
  const auto sink = [&](const LineFolder::Line& line) {
    Require(!line.ranks.empty() && line.ranks.size() <= ranks && std::ranges::is_sorted(line.ranks),
            "a line is of no or too many ranks");
    for (const int rank : line.ranks)
      shown[rank].push_back((line.is_stderr ? "2" : "1") + std::string(line.text));
  };
  LineFolder::TimePoint now;
  while (!input.empty()) {
    now += milliseconds(input.Below(4) * 70);
    const int rank = static_cast<int>(input.Below(ranks));
    const bool is_stderr = input.Flag();
    const std::string_view text = input.Text();
    wrote[rank].push_back((is_stderr ? "2" : "1") + std::string(text));
    folder.Add(now, rank, is_stderr, "[node:" + std::to_string(rank) + "] ", text, sink);
    folder.Flush(now, sink);
    Require(!folder.FlushDue() || *folder.FlushDue() > now, "a line is held too long");
  }
  folder.Finish(sink);
  Require(shown == wrote, "a rank's lines are lost or change places");
  return true;
}

bool RendersLines(const std::string& bytes) {
  const MemoryFile out;
  const MemoryFile err;
  {
    Terminal terminal(out.fd(), err.fd(), "xterm");
    Input input(bytes);
    while (!input.empty()) {
      const size_t what = input.Below(5);
      const std::string text(input.Text());
      if (what == 0) terminal.Out(text);
      if (what == 1) terminal.Err(text);
      if (what == 2) terminal.SetLive({text});
      if (what == 3) terminal.Flush();
    }
  }
  for (const MemoryFile* file : {&out, &err}) {
    const std::string shown = file->Content();
    Require(shown.find('\x1b') == std::string::npos, "an escape sequence is left");
    Require(shown.empty() || shown.back() == '\n', "a line does not end");
  }
  return true;
}

bool TagsLines(const std::string& bytes) {
  Input input(bytes);
  const TagStyle style = {std::string(input.Text()), "default"};
  const std::string tag = LineTag(style, input.Text(), 1000, 3);
  // Variables in the values must not be expanded.
  if (!style.tag_template.empty())
    Require(tag.size() <= 8 * style.tag_template.size(), "a tag grows beyond its values");
  return true;
}

// Two ends that obey the protocol. Each step of the input sends, delivers a part of the data in
// transit, lets the reader consume data, or breaks the connection.
bool ResumesStreams(const std::string& bytes) {
  struct End {
    ResumableCore core;
    std::string on_its_way;  // data in transit to the other end
    std::string sent;
    std::string got;  // data received by the core
    size_t delivered = 0;
  };
  Input input(bytes);
  End ends[2];
  const auto carry = [&ends](size_t from, size_t most) {
    End& to = ends[1 - from];
    std::string& way = ends[from].on_its_way;
    const Result<void> taken = to.core.OnBytes(way.substr(0, most));
    Require(taken.ok(), "an end that obeys the rules is refused");
    way.erase(0, most);
    to.got += to.core.TakeArrived();
  };
  const auto resume = [&ends] {
    const uint64_t has[2] = {ends[0].core.received(), ends[1].core.received()};
    for (size_t i = 0; i < 2; ++i) {
      Require(ends[i].core.CanResumeAt(has[1 - i]), "a stream cannot be resumed");
      ends[i].core.ResumeAt(has[1 - i]);
      ends[i].on_its_way = ends[i].core.TakeFrames();
    }
  };
  bool broke = false;
  while (!input.empty()) {
    const size_t at = input.Below(2);
    End& end = ends[at];
    switch (input.Below(5)) {
      case 0: {
        const std::string_view text = input.Text().substr(0, end.core.Room());
        end.core.Send(text);
        end.sent += text;
        break;
      }
      case 1: {
        // The text is large enough to fill the window.
        const std::string text(std::min<size_t>(end.core.Room(), size_t{input.Byte()} << 16), 'x');
        if (end.sent.size() > 4 * ResumableCore::kWindow) break;
        end.core.Send(text);
        end.sent += text;
        break;
      }
      case 2:
        carry(at, input.Number32());
        break;
      case 3: {
        const size_t taken = std::min<size_t>(end.got.size() - end.delivered, input.Number32());
        end.core.OnDelivered(taken);
        end.delivered += taken;
        break;
      }
      case 4:
        resume();
        broke = true;
        break;
    }
    end.on_its_way += end.core.TakeFrames();
    Require(end.core.Room() <= ResumableCore::kWindow, "a window grows");
    Require(end.got.size() - end.delivered <= ResumableCore::kWindow, "more waits than a window");
  }
  resume();
  for (size_t i = 0; i < 2; ++i) {
    ends[i].core.SendEnd();
    ends[i].on_its_way += ends[i].core.TakeFrames();
  }
  for (size_t i = 0; i < 2; ++i) carry(i, SIZE_MAX);
  for (size_t i = 0; i < 2; ++i) {
    Require(ends[i].core.peer_ended(), "an end is not heard");
    Require(ends[i].got == ends[1 - i].sent, "bytes are lost, doubled or made up");
  }
  return broke;
}

// The first byte of the input is the size of the pieces.
bool ReadsResumableFrames(const std::string& bytes) {
  Input input(bytes);
  const size_t piece = 1 + input.Below(64);
  const std::string_view stream = input.Rest();
  const auto read = [stream](size_t step) {
    ResumableCore core;
    core.Send("twelve bytes");
    std::string got;
    Result<void> taken;
    for (std::string_view rest = stream; taken.ok() && !rest.empty();
         rest.remove_prefix(std::min(step, rest.size()))) {
      taken = core.OnBytes(rest.substr(0, step));
      got += core.TakeArrived();
    }
    if (!taken.ok()) RequireOneLine(taken.error().message);
    Require(core.received() == got.size(), "bytes are counted wrong");
    Require(core.Room() <= ResumableCore::kWindow, "a window grows");
    return std::pair(taken.ok(), got);
  };
  const auto whole = read(SIZE_MAX);
  Require(whole == read(piece), "what is read depends on where the stream is cut");

  const std::string text(stream);
  const std::optional<ResumeTicket> ticket = ParseTicket(text);
  Require(!ticket || FormatTicket(*ticket) == text, "a ticket changes");
  const std::optional<StreamResume> request = ParseRequest(text);
  Require(!request || FormatRequest(*request) == text, "a request changes");
  const std::optional<uint64_t> answer = ParseAnswer(text);
  Require(!answer || FormatAnswer(*answer) == text, "an answer changes");
  return ticket || request || answer || (whole.first && !whole.second.empty());
}

// The first byte of the input is the size of the largest message. Pieces of a stream follow, each
// with its length.
bool ParsesFrames(const std::string& bytes) {
  Input input(bytes);
  const size_t max_bytes = input.Byte();
  asio::io_context io;
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "sockets");
  UniqueFd peer(ends[1]);
  std::string messages;
  std::optional<std::string> closed;
  FramedSocket socket(
      io, UniqueFd(ends[0]),
      [&](std::string_view message) {
        Require(!closed, "a message comes behind the end");
        Require(message.size() <= max_bytes, "a message is too long");
        messages += "<" + std::string(message) + ">";
      },
      [&](const std::string& reason) {
        Require(!closed, "a socket closes twice");
        closed = reason;
      },
      max_bytes);
  std::string sent;
  while (!input.empty()) {
    const std::string_view piece = input.Text();
    (void)send(peer.get(), piece.data(), piece.size(),
               MSG_NOSIGNAL);  // fails after the end of the stream
    sent += piece;
    io.poll();
  }
  peer.Reset();
  io.run();
  Require(closed.has_value(), "a socket does not end");
  RequireOneLine(*closed);
  std::string expected;
  std::string_view rest = sent;
  while (rest.size() >= 4) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length |= size_t{static_cast<uint8_t>(rest[i])} << (8 * i);
    if (length > max_bytes || length > rest.size() - 4) break;
    expected += "<" + std::string(rest.substr(4, length)) + ">";
    rest.remove_prefix(4 + length);
  }
  Require(messages == expected, "a message is lost or made up");
  return !messages.empty();
}

bool TailsLogs(const std::string& bytes) {
  constexpr size_t kFiles = 2;
  static const TempDir folder;
  const std::string paths[kFiles] = {folder / "0", folder / "1"};
  UniqueFd files[kFiles];
  for (size_t i = 0; i < kFiles; ++i)
    files[i].Reset(open(paths[i].c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600));
  asio::io_context io;
  LogTail tail(
      io, [] {}, /*max_lag_bytes=*/512);
  for (size_t i = 0; i < kFiles; ++i) tail.AddFile(static_cast<int>(i), paths[i]);
  std::string written[kFiles];
  bool cut_short = false;
  const auto take = [&](size_t max_bytes) {
    const std::optional<LogTail::Chunk> chunk = tail.Next(max_bytes);
    if (!chunk) return false;
    Require(chunk->data.size() <= max_bytes, "a piece is too long");
    const std::string& file = written[chunk->id];
    Require(cut_short || file.substr(std::min<size_t>(chunk->offset, file.size()),
                                     chunk->data.size()) == chunk->data,
            "other bytes are shown than were written");
    return true;
  };
  Input input(bytes);
  while (!input.empty()) {
    const size_t which = input.Below(kFiles);
    switch (input.Below(4)) {
      case 0:
      case 1: {
        const std::string_view text = input.Text();
        Require(write(files[which].get(), text.data(), text.size()) == std::ssize(text), "write");
        written[which] += text;
        break;
      }
      case 2:
        take(1 + input.Byte());
        break;
      default:
        cut_short = true;
        Require(ftruncate(files[which].get(), input.Byte()) == 0, "truncate");
    }
  }
  for (int i = 0; take(4096); ++i) Require(i < 10'000, "there is no end");
  Require(tail.Remaining() == 0 && tail.Drained(0) && tail.Drained(1), "bytes are left");
  const std::string last = LastLines(paths[0], 3, 100);
  Require(last.size() <= 100 && std::ranges::count(last, '\n') <= 3, "the last lines are too many");
  Require(cut_short || written[0].ends_with(last), "the last lines are others");
  return true;
}

bool ReadsMarks(const std::string& bytes) {
  static const TempDir attempt;
  std::filesystem::remove(attempt / "marks");
  attempt.Write("marks", bytes);
  const JobLog log = {1, 3, false, attempt / "rank_3/stdout.log"};
  constexpr int64_t kTimeMs = 1'700'000'000'000;
  const uint64_t offset = OffsetAt(log, kTimeMs);
  Require(offset == 0 || bytes.find(std::to_string(offset)) != std::string::npos,
          "an offset is made up");
  const std::string thinned = ThinMarks(bytes);
  Require(thinned.size() <= bytes.size() + 1, "marks grow when they are thinned");
  return offset != 0;
}

bool ReadsErrorFile(const std::string& bytes) {
  const std::optional<std::string> message = ReadErrorFile(bytes);
  for (const int signal : {0, 6, 9}) {
    for (const std::string& error : {std::string(), message.value_or("")}) {
      const FailureEvidence evidence = ClassifyFailure(signal, bytes, error);
      Require(evidence.line.size() < 2000, "evidence is too long");
      Require(evidence.line == SanitizeForTerminal(evidence.line),
              "evidence could steer a terminal");
      Require(!evidence.victim || signal != 9, "a killed rank is a victim");
      const RestartVerdict verdict = JudgeRestart(signal, bytes, evidence.line, evidence.victim);
      Require(verdict.line == SanitizeForTerminal(verdict.line),
              "the line of a verdict could steer a terminal");
      Require(verdict.reason.empty() == (verdict.restart == pb::Cause::RESTART_UNKNOWN),
              "a verdict without a reason");
    }
  }
  return message.has_value();
}

bool ReadsGpuTools(const std::string& bytes) {
  const size_t first = std::min(bytes.find('\0'), bytes.size());
  const size_t second = std::min(bytes.find('\0', std::min(first + 1, bytes.size())), bytes.size());
  const std::string_view text = bytes;
  const std::string_view apps = text.substr(std::min(first + 1, second), second - first);
  const std::vector<pb::GpuHealth> gpus = ParseGpuHealth(text.substr(0, first), apps);
  for (const pb::GpuHealth& gpu : gpus) {
    Require(gpu.holder() == SanitizeForTerminal(gpu.holder()), "a holder could steer a terminal");
    Require(gpu.uuid() == SanitizeForTerminal(gpu.uuid()), "a UUID could steer a terminal");
  }
  const std::vector<pb::DeviceSpeed> speeds = ParseDeviceSpeeds(text.substr(second));
  Require(speeds.size() <= 64, "there are too many devices");
  return !gpus.empty() || !speeds.empty();
}

bool ReadsScript(const std::string& bytes) {
  const std::string option = LocalRankOption(bytes);
  Require(option.empty() || option == "--local_rank" || option == "--local-rank",
          "an option is made up");
  return !option.empty();
}

bool ReadsProgramHead(const std::string& bytes) {
  const std::optional<Interpreter> interpreter = ReadInterpreter(bytes);
  if (!interpreter) return false;
  Require(!interpreter->path.empty() && bytes.find(interpreter->path) != std::string::npos,
          "an interpreter is made up");
  Require(interpreter->path.find('\0') == std::string::npos, "a path has a zero byte");
  return true;
}

bool ReadsFlightRecord(const std::string& bytes) {
  Result<pb::FlightRecord> record = ReadFlightRecord(bytes);
  if (!record.ok()) return false;
  Require(record->ByteSizeLong() <= kMaxRankStackBytes, "a record is small");
  pb::FlightRecord other = *record;
  record->set_rank(0);
  other.set_rank(1);
  const auto verdict = JudgeFlight({&*record, &other}, 2);
  Require(!verdict || verdict->ranks.size() <= 2, "only ranks of the job are named");
  return true;
}

bool ReadsPythonImage(const std::string& bytes) {
  constexpr size_t kMostReads = 100'000;
  MemoryImage image(bytes);
  const Result<std::optional<PythonLayout>> layout = FindLayout(image.maps(), image);
  if (!layout.ok()) Require(!layout.error().message.empty(), "a refusal has no reason");
  if (!layout.ok() || !*layout) return false;
  const PythonStacks stacks = ReadPythonStacks(image, **layout, image.tids());
  Require(stacks.threads.size() <= kMaxReadThreads, "too many threads");
  for (const PythonThread& thread : stacks.threads)
    Require(thread.frames.size() <= kMaxReadFrames, "too many frames");
  Require(image.reads() <= kMostReads, "too much is read");
  return !stacks.threads.empty();
}

bool ReadsProcTexts(const std::string& bytes) {
  bool any = false;
  if (const std::optional<ProcessInfo> process = ParseProcessStat(bytes)) {
    any = true;
    Require(process->command.size() <= bytes.size(), "a name is made up");
  }
  if (const std::optional<ThreadState> thread = ParseThreadStat(bytes)) {
    any = true;
    RequireSanitized(thread->name);
  }
  ParseSystemCall(bytes);
  ParseKernelStack(bytes);
  ParseOomKills(bytes);
  ParseOutOfMemoryKills(bytes);
  ParseKillUserProcesses({bytes});
  Require(ChangedLimits(bytes, bytes).empty(), "a limit differs from itself");
  if (const std::optional<uint32_t> cores = ParseCpuMax(bytes))
    Require(*cores >= 1, "no core may be used");
  const std::string_view first = std::string_view(bytes).substr(0, bytes.find('\n'));
  FindOwnCgroup(bytes, bytes).ok();
  FindOwnCgroup(bytes, first).ok();
  if (const std::optional<std::string> kill = FindOutOfMemoryKill(bytes, 7, 1)) {
    any = true;
    Require(kill->find('\n') == std::string::npos, "a record has several lines");
  }
  FindOutOfMemoryKillNamedIn(bytes, bytes, 1);
  ListeningUnixSockets(bytes);
  ListeningTcpSockets(bytes);
  const std::string place = CoreDumpPlace(bytes, true, "/work", 7);
  Require(place.starts_with("in ") || place.starts_with("with "), "a core dump is nowhere");
  return any;
}

bool ReadsJobResult(const std::string& bytes) {
  static const TempDir folder;
  std::filesystem::remove(folder / "result.json");
  folder.Write("result.json", bytes);
  const std::optional<pb::JobResult> result = ReadJobResult(folder.path());
  if (!result) return false;
  static const TempDir other;
  Require(WriteJobResult(other.path(), *result).ok(), "a result cannot be written");
  const std::optional<pb::JobResult> again = ReadJobResult(other.path());
  Require(again && again->SerializeAsString() == result->SerializeAsString(),
          "a result changes when it is written");
  return true;
}

}  // namespace dslaunch
