#include "agent/logs/event_hub.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

// Limit of the unsent events of a viewer. A viewer with more does not read, so it is disconnected;
// it may attach again.
constexpr size_t kMaxWaitingEvents = 1000;

uint64_t SizeOf(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

}  // namespace

void EventHub::Attach(RankSelection selection, std::shared_ptr<EventSink> sink,
                      const pb::SampleRequest& samples) {
  front_end_selection_ = std::move(selection);
  front_end_samples_ = samples;
  front_end_.Attach(std::move(sink));
}

void EventHub::Detach() {
  front_end_samples_.Clear();
  front_end_.Detach();
}

void EventHub::AddViewer(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink) {
  Viewer viewer;
  viewer.sink = sink;
  viewer.selection = RankSelection(request.shown());
  viewer.samples = request.samples();
  viewer.stream = std::make_unique<EventStream>(loop_);
  for (const auto& event : {started_, running_, standstill_, outcome_, goodput_}) {
    if (event) viewer.stream->Emit(*event);
  }
  for (const auto& [rank, line] : newest_status_) viewer.stream->EmitStatus(rank, line);
  FollowOldFiles(request, viewer);
  if (end_) viewer.stream->End(*end_);
  EventStream& stream = *viewer.stream;
  viewers_.push_back(std::move(viewer));
  stream.Attach(std::move(sink));
}

void EventHub::FollowOldFiles(const pb::AttachRequest& request, Viewer& viewer) {
  const uint64_t newest_attempt = files_.empty() ? 0 : files_.back().attempt;
  uint64_t newest_named = UINT64_MAX;
  if (request.offsets_size() > 0) {
    newest_named = std::ranges::max(request.offsets(), {}, [](const pb::LogOffset& offset) {
                     return offset.attempt();
                   }).attempt();
  }
  uint64_t attempt = 0;
  for (const LogFile& file : files_) {
    if (!viewer.selection.Has(file.rank, file.local_rank, file.is_stderr)) continue;
    const auto named = std::ranges::find_if(request.offsets(), [&](const pb::LogOffset& offset) {
      return offset.attempt() == file.attempt && offset.rank() == file.rank &&
             offset.is_stderr() == file.is_stderr;
    });
    const bool is_named = named != request.offsets().end();
    const bool came_later = file.attempt > newest_named;
    if (!is_named && !came_later && file.attempt != newest_attempt) continue;
    const uint64_t offset = is_named ? named->offset() : came_later ? 0 : SizeOf(file.path);
    pb::NodeEvent position;
    position.mutable_log()->set_attempt(file.attempt);
    position.mutable_log()->set_rank(file.rank);
    position.mutable_log()->set_local_rank(file.local_rank);
    position.mutable_log()->set_is_stderr(file.is_stderr);
    position.mutable_log()->set_offset(offset);
    viewer.stream->Emit(std::move(position));
    if (std::exchange(attempt, file.attempt) != file.attempt) viewer.stream->EndAttempt();
    viewer.stream->Follow(file, file.path, offset);
  }
  if (attempt_over_) viewer.stream->EndAttempt();
}

void EventHub::OnViewerWritten(const EventSink* sink, bool ok) {
  for (Viewer& viewer : viewers_) {
    if (viewer.sink.get() == sink) return viewer.stream->OnWritten(ok);
  }
}

void EventHub::RemoveViewer(const EventSink* sink) {
  std::erase_if(viewers_, [&](const Viewer& viewer) { return viewer.sink.get() == sink; });
}

bool EventHub::HasViewers() const { return !viewers_.empty(); }

void EventHub::Emit(pb::NodeEvent event) {
  Remember(event);
  for (Viewer& viewer : viewers_) {
    if (viewer.stream->waiting() < kMaxWaitingEvents)
      viewer.stream->Emit(event);
    else
      viewer.sink->Finish();  // ends the stream, which leads to a call of RemoveViewer()
  }
  front_end_.Emit(std::move(event));
}

void EventHub::Remember(const pb::NodeEvent& event) {
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      started_ = event;
      break;
    case pb::NodeEvent::kRunning:
      running_ = event;
      break;
    case pb::NodeEvent::kGoodput:
      goodput_ = event;
      break;
    case pb::NodeEvent::kRestarting:
      started_.reset();
      running_.reset();
      standstill_.reset();
      break;
    case pb::NodeEvent::kNotice:
      if (event.notice().standstill() == pb::Notice::BEGUN) standstill_ = event;
      if (event.notice().standstill() == pb::Notice::OVER) standstill_.reset();
      break;
    case pb::NodeEvent::kOutcome:
      outcome_ = event;
      break;
    default:
      break;
  }
}

void EventHub::EmitAlive(bool to_front_end) {
  if (to_front_end) front_end_.EmitAlive();
  for (Viewer& viewer : viewers_) viewer.stream->EmitAlive();
}

void EventHub::EmitStatus(uint32_t rank, std::string line, StatusKind kind) {
  for (Viewer& viewer : viewers_) viewer.stream->EmitStatus(rank, line, kind);
  front_end_.EmitStatus(rank, line, kind);
  if (kind == StatusKind::kProgress) newest_status_.insert_or_assign(rank, std::move(line));
}

void EventHub::EmitSample(const pb::NodeSample& sample) {
  if (front_end_samples_.every_ms() > 0) front_end_.EmitSample(sample);
  for (Viewer& viewer : viewers_) {
    if (viewer.samples.every_ms() > 0) viewer.stream->EmitSample(sample);
  }
}

pb::SampleRequest EventHub::WantedSamples() const {
  pb::SampleRequest wanted = front_end_samples_;
  for (const Viewer& viewer : viewers_) {
    const uint32_t every_ms = viewer.samples.every_ms();
    if (every_ms == 0) continue;
    wanted.set_every_ms(wanted.every_ms() == 0 ? every_ms : std::min(wanted.every_ms(), every_ms));
    wanted.set_last_lines(wanted.last_lines() || viewer.samples.last_lines());
  }
  return wanted;
}

void EventHub::EndAttempt() {
  attempt_over_ = true;
  newest_status_.clear();
  front_end_.EndAttempt();
  for (Viewer& viewer : viewers_) viewer.stream->EndAttempt();
}

void EventHub::FollowRank(uint64_t attempt, uint32_t rank, uint32_t local_rank,
                          const std::string& folder) {
  attempt_over_ = false;
  for (const bool is_stderr : {false, true}) {
    const std::string path = folder + (is_stderr ? "/stderr.log" : "/stdout.log");
    const LogFile& file =
        files_.emplace_back(LogFile{{attempt, rank, local_rank, is_stderr}, path});
    if (front_end_selection_.Has(rank, local_rank, is_stderr)) front_end_.Follow(file, path);
    for (Viewer& viewer : viewers_) {
      if (viewer.selection.Has(rank, local_rank, is_stderr)) viewer.stream->Follow(file, path);
    }
  }
}

void EventHub::End(const pb::NodeDone& done) {
  if (!end_) end_ = done;
  front_end_.End(*end_);
  for (Viewer& viewer : viewers_) viewer.stream->End(*end_);
}

}  // namespace dslaunch
