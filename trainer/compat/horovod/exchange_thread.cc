#include "trainer/compat/horovod/exchange_thread.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "trainer/base/log.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod {

using std::chrono::steady_clock;

namespace {

// Positions of the words in a rank's first message of a cycle: flags, the size of its second
// message in bytes, and then one bit for each position in the cache.
constexpr size_t kFlags = 0, kBytes = 1, kBits = 2;
constexpr int64_t kJoined = 1, kLeaving = 2, kGivesUp = 4;
constexpr size_t kWordBits = 64;

ReduceOp ToReduceOp(Op op) {
  switch (op) {
    case Op::kAverage:
    case Op::kSum:
      return ReduceOp::kSum;
    case Op::kMin:
      return ReduceOp::kMin;
    case Op::kMax:
      return ReduceOp::kMax;
    case Op::kProduct:
      return ReduceOp::kProduct;
  }
  std::abort();
}

void Scale(at::Tensor& tensor, double factor) {
  if (factor == 1) return;
  if (tensor.is_floating_point()) {
    tensor.mul_(factor);
  } else {
    tensor.copy_(tensor.to(at::kDouble).mul_(factor));
  }
}

void Divide(at::Tensor& tensor, int64_t divisor) {
  if (tensor.is_floating_point()) {
    tensor.div_(divisor);
  } else {
    tensor.div_(divisor, "trunc");
  }
}

}  // namespace

void Handle::State::Finish(std::vector<at::Tensor> values, std::vector<int64_t> splits) {
  for (size_t i = 0; i < values.size() && i < targets.size(); ++i) {
    if (!targets[i].defined()) continue;
    targets[i].copy_(values[i]);
    values[i] = targets[i];
  }
  const MutexLock lock(mutex);
  results = std::move(values);
  received_splits = std::move(splits);
  done = true;
  changed.NotifyAll();
}

void Handle::State::Fail(const TrainError& why) {
  const MutexLock lock(mutex);
  error = why;
  done = true;
  changed.NotifyAll();
}

bool Handle::State::IsDone() {
  const MutexLock lock(mutex);
  return done;
}

std::vector<at::Tensor> Handle::State::Wait() {
  const MutexLock lock(mutex);
  changed.Wait(mutex, [this]() DSL_REQUIRES(mutex) { return done; });
  if (error) throw *error;
  return results;
}

ExchangeThread::ExchangeThread(const ProcessGroup& group, const InitOptions& options,
                               std::vector<int> ranks, Timeline* timeline)
    : group_(group),
      options_(options),
      ranks_(std::move(ranks)),
      timeline_(timeline),
      negotiation_(ranks_, static_cast<size_t>(options.cache_capacity)),
      thread_([this] { Run(); }) {}

ExchangeThread::~ExchangeThread() { Stop(); }

void ExchangeThread::Submit(std::shared_ptr<Handle::State> state) {
  const MutexLock lock(mutex_);
  if (end_) throw *end_;
  const std::string& name = state->request.name;
  if (!under_way_.emplace(name, state).second) {
    throw TrainError(
        ExitCode::kUsage,
        "a tensor with the name '" + name +
            "' is under way already; wait for it (Synchronize) before the name is used "
            "again, or give each tensor a name of its own");
  }
  state->submitted = steady_clock::now();
  new_.push_back(std::move(state));
}

int ExchangeThread::Join() {
  const MutexLock lock(mutex_);
  if (end_) throw *end_;
  joined_ = true;
  last_joined_.reset();
  // Ranks with data may need any time, and the thread detects lost ranks, so this wait has no
  // timeout.
  changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return last_joined_.has_value() || end_; });
  if (!last_joined_) throw *end_;
  return *last_joined_;
}

void ExchangeThread::Stop() {
  {
    const MutexLock lock(mutex_);
    leaving_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ExchangeThread::Run() {
  try {
    while (true) {
      const steady_clock::time_point next = steady_clock::now() + options_.cycle_time;
      if (!Cycle()) return;
      const MutexLock lock(mutex_);
      (void)changed_.WaitUntil(mutex_, next, [this]() DSL_REQUIRES(mutex_) { return leaving_; });
    }
  } catch (...) {
    const TrainError error = ExplainException();
    // The error is a bug if it is neither a TrainError nor a communication error.
    const bool is_bug = error.code() == ExitCode{1};
    End(is_bug ? TrainError(ExitCode::kInternal, std::string("horovod: ") + error.what()) : error);
    const MutexLock lock(mutex_);
    failed_ = true;
  }
}

bool ExchangeThread::Failed() {
  const MutexLock lock(mutex_);
  return failed_;
}

bool ExchangeThread::Cycle() {
  const at::NoGradGuard no_grad;
  const Negotiation::Decision decision =
      negotiation_.OnCycle(ExchangeMessages(Collect()), steady_clock::now());
  if (decision.left) {
    const int rank = ranks_[static_cast<size_t>(*decision.left)];
    End(PeerLost("horovod: rank " + std::to_string(rank) +
                 " has left (it called Shutdown, or its program ended), so no tensor can be "
                 "exchanged any more"));
    return false;
  }
  if (decision.stalled) {
    End(PeerLate(*decision.stalled));
    return false;
  }
  Execute(decision.ready);
  if (decision.last_joined) {
    const MutexLock lock(mutex_);
    joined_ = false;
    last_joined_ = *decision.last_joined;
    changed_.NotifyAll();
  }
  ReportStalls();
  return true;
}

RankMessage ExchangeThread::Collect() {
  RankMessage message;
  const std::vector<Stall> stalls = negotiation_.Stalls(steady_clock::now());
  message.gives_up = !stalls.empty() && stalls[0].age > options_.stall_shutdown;
  const MutexLock lock(mutex_);
  message.joined = joined_;
  message.leaving = leaving_;
  for (const std::shared_ptr<Handle::State>& state : new_) {
    const std::optional<size_t> position = negotiation_.CachedPosition(state->request);
    if (position) {
      message.cached.push_back(*position);
    } else {
      message.requests.push_back(state->request);
    }
  }
  new_.clear();
  return message;
}

// Exchanges one small message per rank, and a second message if any rank submits a request that is
// not in the cache. Returns the messages of all ranks.
std::vector<RankMessage> ExchangeThread::ExchangeMessages(const RankMessage& own) {
  const size_t words = kBits + (negotiation_.cache_capacity() + kWordBits - 1) / kWordBits;
  at::Tensor header = at::zeros({static_cast<int64_t>(words)}, at::kLong);
  auto* const mine = header.mutable_data_ptr<int64_t>();
  const std::string text = own.requests.empty() ? "" : EncodeRequests(own.requests);
  mine[kFlags] =
      (own.joined ? kJoined : 0) | (own.leaving ? kLeaving : 0) | (own.gives_up ? kGivesUp : 0);
  mine[kBytes] = static_cast<int64_t>(text.size());
  for (const size_t position : own.cached) {
    mine[kBits + position / kWordBits] |= static_cast<int64_t>(uint64_t{1} << position % kWordBits);
  }
  const at::Tensor headers = group_.AllGather(header);

  std::vector<RankMessage> messages(ranks_.size());
  int64_t longest = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int64_t* const words_of = headers.const_data_ptr<int64_t>() + rank * words;
    RankMessage& message = messages[rank];
    message.joined = (words_of[kFlags] & kJoined) != 0;
    message.leaving = (words_of[kFlags] & kLeaving) != 0;
    message.gives_up = (words_of[kFlags] & kGivesUp) != 0;
    longest = std::max(longest, words_of[kBytes]);
    for (size_t word = kBits; word < words; ++word) {
      for (auto bits = static_cast<uint64_t>(words_of[word]); bits != 0; bits &= bits - 1) {
        message.cached.push_back((word - kBits) * kWordBits +
                                 static_cast<size_t>(std::countr_zero(bits)));
      }
    }
  }
  if (longest == 0) return messages;
  at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor texts = group_.AllGather(padded);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int64_t bytes = headers.const_data_ptr<int64_t>()[rank * words + kBytes];
    if (bytes == 0) continue;
    const auto* const begin =
        static_cast<const char*>(texts.const_data_ptr()) + rank * static_cast<size_t>(longest);
    messages[rank].requests = DecodeRequests({begin, static_cast<size_t>(bytes)});
  }
  return messages;
}

// Prints warnings about stalled tensors on the first rank of the set, for all ranks.
void ExchangeThread::ReportStalls() {
  if (group_.rank() != 0 || options_.stall_warning.count() == 0) return;
  const steady_clock::time_point now = steady_clock::now();
  std::map<std::string, steady_clock::time_point> warned;
  for (const Stall& stall : negotiation_.Stalls(now)) {
    if (stall.age < options_.stall_warning) continue;
    const auto before = warned_.find(stall.name);
    if (before != warned_.end() && now - before->second < options_.stall_warning) {
      warned.insert(*before);
      continue;
    }
    PrintError(StallText(stall));
    warned[stall.name] = now;
  }
  warned_ = std::move(warned);
}

// Removes and returns the pending request `name`; null if this rank has not submitted it, because
// it has joined.
std::shared_ptr<Handle::State> ExchangeThread::Take(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = under_way_.find(name);
  if (found == under_way_.end()) return nullptr;
  std::shared_ptr<Handle::State> state = std::move(found->second);
  under_way_.erase(found);
  return state;
}

void ExchangeThread::Execute(const std::vector<Response>& responses) {
  for (const std::vector<Piece>& pieces : Fuse(responses, options_.fusion_threshold_bytes)) {
    Reduce(responses, pieces);
  }
  for (const Response& response : responses) {
    const steady_clock::time_point begin = steady_clock::now();
    const std::shared_ptr<Handle::State> state = Take(response.request.name);
    if (!state) continue;
    if (timeline_ != nullptr) {
      timeline_->Add(response.request.name, std::string("negotiate ") + Name(response.request.kind),
                     state->submitted, begin);
    }
    if (!response.error.empty()) {
      state->Fail(TrainError(ExitCode::kBadInput, response.error));
      continue;
    }
    switch (response.request.kind) {
      case Kind::kAllreduce:
      case Kind::kBarrier:
        state->Finish(state->tensors);
        continue;
      case Kind::kBroadcast:
        group_.Broadcast(state->tensors[0], response.request.root);
        state->Finish(state->tensors);
        break;
      case Kind::kAllgather:
        Gather(response, state);
        break;
      case Kind::kAlltoall:
        Scatter(response, state);
        break;
    }
    if (timeline_ != nullptr) {
      timeline_->Add(response.request.name, Name(response.request.kind), begin,
                     steady_clock::now());
    }
  }
}

void ExchangeThread::Reduce(const std::vector<Response>& responses,
                            const std::vector<Piece>& pieces) {
  const Request& first = responses[pieces[0].response].request;
  // Tensors of this rank; undefined if this rank has joined.
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> sizes;
  int64_t elements = 0;
  {
    const MutexLock lock(mutex_);
    for (const auto& [response, tensor] : pieces) {
      const Request& request = responses[response].request;
      const auto found = under_way_.find(request.name);
      tensors.push_back(found == under_way_.end() ? at::Tensor() : found->second->tensors[tensor]);
      sizes.push_back(request.tensors[tensor].elements());
      elements += sizes.back();
    }
  }
  const at::ScalarType dtype = first.tensors[pieces[0].tensor].dtype;
  const steady_clock::time_point begin = steady_clock::now();
  const bool alone = pieces.size() == 1 && tensors[0].defined();
  at::Tensor message = alone ? tensors[0] : at::zeros({elements}, at::TensorOptions(dtype));
  if (!alone) {
    int64_t start = 0;
    for (size_t i = 0; i < tensors.size(); start += sizes[i++]) {
      if (tensors[i].defined()) message.narrow(0, start, sizes[i]).copy_(tensors[i].flatten());
    }
  }
  const steady_clock::time_point filled = steady_clock::now();
  Scale(message, first.prescale_factor);
  group_.AllReduce(message, ToReduceOp(first.op));
  if (first.op == Op::kAverage) Divide(message, group_.world_size());
  Scale(message, first.postscale_factor);
  const steady_clock::time_point reduced = steady_clock::now();
  if (!alone) {
    int64_t start = 0;
    for (size_t i = 0; i < tensors.size(); start += sizes[i++]) {
      if (tensors[i].defined()) {
        tensors[i].copy_(message.narrow(0, start, sizes[i]).view_as(tensors[i]));
      }
    }
  }
  if (timeline_ == nullptr || !timeline_->enabled()) return;
  const steady_clock::time_point end = steady_clock::now();
  for (const auto& [response, tensor] : pieces) {
    const std::string& name = responses[response].request.name;
    timeline_->Add(name, "allreduce", begin, end);
    if (alone) continue;
    timeline_->Add(name, "copy into the fusion buffer", begin, filled);
    timeline_->Add(name, "copy out of the fusion buffer", reduced, end);
  }
}

void ExchangeThread::Gather(const Response& response, const std::shared_ptr<Handle::State>& state) {
  int64_t most = 0;
  for (const std::vector<int64_t>& rows : response.splits) most = std::max(most, rows[0]);
  const at::Tensor& own = state->tensors[0];
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = most;
  at::Tensor padded = own;
  if (own.size(0) != most) {
    padded = at::zeros(shape, own.options());
    padded.narrow(0, 0, own.size(0)).copy_(own);
  }
  const at::Tensor all = group_.AllGather(padded);
  std::vector<at::Tensor> parts;
  std::vector<int64_t> rows;
  for (size_t rank = 0; rank < response.splits.size(); ++rank) {
    rows.push_back(response.splits[rank][0]);
    parts.push_back(all[static_cast<int64_t>(rank)].narrow(0, 0, rows.back()));
  }
  state->Finish({at::cat(parts)}, std::move(rows));
}

// Performs a reduce-scatter. Not all backends support parts of different sizes, so the parts are
// padded to equal sizes.
void ExchangeThread::Scatter(const Response& response,
                             const std::shared_ptr<Handle::State>& state) {
  const auto ranks = static_cast<int64_t>(response.splits.size());
  const auto own_rank = static_cast<size_t>(group_.rank());
  int64_t most = 0;
  for (const std::vector<int64_t>& splits : response.splits) {
    most = std::max(most, std::ranges::max(splits));
  }
  const at::Tensor& input = state->tensors[0];
  std::vector<int64_t> shape = input.sizes().vec();
  shape[0] = most;
  shape.insert(shape.begin(), ranks);
  at::Tensor sent = at::zeros(shape, input.options());
  int64_t start = 0;
  for (int64_t to = 0; to < ranks; ++to) {
    const int64_t rows = response.splits[own_rank][static_cast<size_t>(to)];
    sent[to].narrow(0, 0, rows).copy_(input.narrow(0, start, rows));
    start += rows;
  }
  at::Tensor received = at::empty_like(sent);
  if (sent.numel() > 0) {
    const auto bytes = [](const at::Tensor& tensor) {
      return at::from_blob(tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, at::kByte);
    };
    at::Tensor to = bytes(received), from = bytes(sent);
    std::vector<int64_t> equal_parts;
    group_.c10d_group()->alltoall_base(to, from, equal_parts, equal_parts)->wait();
  }
  std::vector<at::Tensor> parts;
  std::vector<int64_t> rows;
  for (int64_t from = 0; from < ranks; ++from) {
    rows.push_back(response.splits[static_cast<size_t>(from)][own_rank]);
    parts.push_back(received[from].narrow(0, 0, rows.back()));
  }
  state->Finish({at::cat(parts)}, std::move(rows));
}

void ExchangeThread::End(const TrainError& why) {
  const MutexLock lock(mutex_);
  end_ = why;
  for (const auto& [name, state] : under_way_) state->Fail(why);
  under_way_.clear();
  new_.clear();
  changed_.NotifyAll();
}

}  // namespace dslaunch::horovod
