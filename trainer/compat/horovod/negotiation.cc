#include "trainer/compat/horovod/negotiation.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "trainer/base/train_error.h"

namespace dslaunch::horovod {

using nlohmann::json;

namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string RanksText(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

// Returns a message about the first property that must be equal on all ranks but differs between
// two requests, with both values; empty if nothing differs.
std::string Difference(const Request& first, int first_rank, const Request& other, int rank) {
  const auto differ = [&](const std::string& what, const std::string& a, const std::string& b) {
    return "the " + std::string(Name(first.kind)) + " of '" + first.name +
           "' does not fit: " + what + " is " + a + " on rank " + std::to_string(first_rank) +
           " and " + b + " on rank " + std::to_string(rank);
  };
  if (first.kind != other.kind) return differ("the operation", Name(first.kind), Name(other.kind));
  if (first.tensors.size() != other.tensors.size()) {
    return differ("the number of tensors", std::to_string(first.tensors.size()),
                  std::to_string(other.tensors.size()));
  }
  const bool rows_vary = first.kind == Kind::kAllgather || first.kind == Kind::kAlltoall;
  for (size_t i = 0; i < first.tensors.size(); ++i) {
    const TensorForm &a = first.tensors[i], &b = other.tensors[i];
    if (a.dtype != b.dtype) {
      return differ("the dtype", c10::str(a.dtype), c10::str(b.dtype));
    }
    const size_t from = rows_vary && !a.shape.empty() ? 1 : 0;
    const bool same = a.shape.size() == b.shape.size() &&
                      std::equal(a.shape.begin() + static_cast<ptrdiff_t>(from), a.shape.end(),
                                 b.shape.begin() + static_cast<ptrdiff_t>(from));
    if (!same) return differ("the shape", ShapeText(a.shape), ShapeText(b.shape));
  }
  if (first.op != other.op) {
    return differ("the reduction (Op)", std::to_string(static_cast<int>(first.op)),
                  std::to_string(static_cast<int>(other.op)));
  }
  if (first.root != other.root) {
    return differ("the root", std::to_string(first.root), std::to_string(other.root));
  }
  if (first.prescale_factor != other.prescale_factor ||
      first.postscale_factor != other.postscale_factor) {
    return differ("the scale", c10::str(first.prescale_factor, " and ", first.postscale_factor),
                  c10::str(other.prescale_factor, " and ", other.postscale_factor));
  }
  return "";
}

// Returns whether a request may be in the cache, so that ranks send only its position. Such a
// request is equal on all ranks.
bool CanBeCached(const Request& request) {
  return request.kind == Kind::kAllreduce || request.kind == Kind::kBroadcast;
}

template <class Member>
void Erase(std::vector<Member>& members, const Member& member) {
  members.erase(std::ranges::find(members, member));
}

}  // namespace

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce:
      return "allreduce";
    case Kind::kAllgather:
      return "allgather";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAlltoall:
      return "alltoall";
    case Kind::kBarrier:
      return "barrier";
  }
  std::abort();
}

int64_t TensorForm::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

int64_t TensorForm::bytes() const {
  return elements() * static_cast<int64_t>(c10::elementSize(dtype));
}

std::string EncodeRequests(const std::vector<Request>& requests) {
  json all = json::array();
  for (const Request& request : requests) {
    json tensors = json::array();
    for (const TensorForm& form : request.tensors) {
      tensors.push_back({static_cast<int>(form.dtype), form.shape});
    }
    all.push_back({static_cast<int>(request.kind), request.name, static_cast<int>(request.op),
                   request.prescale_factor, request.postscale_factor, request.root, tensors,
                   request.splits});
  }
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<Request> DecodeRequests(std::string_view text) {
  std::vector<Request> requests;
  try {
    for (const json& parsed : json::parse(text)) {
      Request request;
      request.kind = static_cast<Kind>(
          std::clamp(parsed.at(0).get<int>(), 0, static_cast<int>(Kind::kBarrier)));
      request.name = parsed.at(1).get<std::string>();
      request.op =
          static_cast<Op>(std::clamp(parsed.at(2).get<int>(), 0, static_cast<int>(Op::kProduct)));
      request.prescale_factor = parsed.at(3).get<double>();
      request.postscale_factor = parsed.at(4).get<double>();
      request.root = parsed.at(5).get<int>();
      for (const json& form : parsed.at(6)) {
        request.tensors.push_back({form.at(1).get<std::vector<int64_t>>(),
                                   static_cast<at::ScalarType>(form.at(0).get<int>())});
      }
      request.splits = parsed.at(7).get<std::vector<int64_t>>();
      requests.push_back(std::move(request));
    }
  } catch (const json::exception& error) {
    throw TrainError(ExitCode::kInternal,
                     std::string("a rank's list of tensors cannot be read: ") + error.what());
  }
  return requests;
}

std::string StallText(const Stall& stall) {
  return "horovod: " + RanksText(stall.missing) + (stall.missing.size() == 1 ? " has" : " have") +
         " not submitted '" + stall.name + "' (" + Name(stall.kind) + ") for " +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(stall.age).count()) +
         " s, and the other ranks wait for it; all ranks must submit the same tensors (look for a "
         "branch that not all ranks take, or uneven data without Join)";
}

Negotiation::Negotiation(std::vector<int> names, size_t cache_capacity)
    : names_(std::move(names)),
      ranks_(names_.size()),
      capacity_(cache_capacity),
      joined_(ranks_),
      cache_(cache_capacity) {}

std::optional<size_t> Negotiation::CachedPosition(const Request& request) const {
  const auto found = position_of_.find(request.name);
  if (found == position_of_.end() || *cache_[found->second] != request) return std::nullopt;
  return found->second;
}

void Negotiation::Submit(size_t rank, const Request& request, Clock::time_point now) {
  const auto [entry, is_new] = pending_.try_emplace(request.name);
  if (is_new) {
    order_.push_back(request.name);
    entry->second.by_rank.resize(ranks_);
    entry->second.since = now;
  }
  entry->second.by_rank[rank] = request;
}

bool Negotiation::IsReady(const Pending& pending) const {
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (!pending.by_rank[rank] && !joined_[rank]) return false;
  }
  return true;
}

Response Negotiation::Respond(const Pending& pending) const {
  Response response;
  int first_rank = -1;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const std::optional<Request>& request = pending.by_rank[rank];
    if (!request) continue;
    if (first_rank < 0) {
      first_rank = names_[rank];
      response.request = *request;
    }
    if (response.error.empty()) {
      response.error = Difference(response.request, first_rank, *request, names_[rank]);
    }
  }
  const Request& request = response.request;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const bool reduces = request.kind == Kind::kAllreduce || request.kind == Kind::kBarrier;
    if (!pending.by_rank[rank] && !reduces && response.error.empty()) {
      response.error = "the " + std::string(Name(request.kind)) + " of '" + request.name +
                       "' cannot be done: rank " + std::to_string(names_[rank]) +
                       " has called Join, and takes part in reductions only";
    }
  }
  if (!response.error.empty()) return response;
  for (const std::optional<Request>& of_rank : pending.by_rank) {
    if (request.kind == Kind::kAllgather) {
      response.splits.push_back({of_rank->tensors[0].shape[0]});
    } else if (request.kind == Kind::kAlltoall) {
      response.splits.push_back(of_rank->splits);
    }
  }
  return response;
}

void Negotiation::Remember(const Request& request) {
  if (capacity_ == 0 || !CanBeCached(request)) return;
  const auto found = position_of_.find(request.name);
  size_t position = used_.size();
  if (found != position_of_.end()) {
    position = found->second;
    used_.remove(position);
  } else if (used_.size() == capacity_) {
    position = used_.back();
    used_.pop_back();
    position_of_.erase(cache_[position]->name);
  }
  cache_[position] = request;
  position_of_[request.name] = position;
  used_.push_front(position);
}

Negotiation::Decision Negotiation::OnCycle(const std::vector<RankMessage>& messages,
                                           Clock::time_point now) {
  Decision decision;
  bool gives_up = false;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const RankMessage& message = messages[rank];
    if (message.leaving && !decision.left) decision.left = static_cast<int>(rank);
    gives_up = gives_up || message.gives_up;
    if (message.joined && !joined_[rank]) last_joined_ = static_cast<int>(rank);
    joined_[rank] = message.joined;
    for (const size_t position : message.cached) {
      if (position >= capacity_ || !cache_[position]) {
        throw TrainError(ExitCode::kInternal, "rank " + std::to_string(rank) +
                                                  " named a tensor that is not in the cache");
      }
      Submit(rank, *cache_[position], now);
    }
    for (const Request& request : message.requests) Submit(rank, request, now);
  }
  if (decision.left) return decision;
  if (gives_up) {
    const std::vector<Stall> stalls = Stalls(now);
    decision.stalled =
        stalls.empty() ? "horovod: a rank gave up waiting for the others" : StallText(stalls[0]);
    return decision;
  }
  for (const std::string& name : std::vector<std::string>(order_)) {
    const Pending& pending = pending_.at(name);
    if (!IsReady(pending)) continue;
    decision.ready.push_back(Respond(pending));
    pending_.erase(name);
    Erase(order_, name);
    if (decision.ready.back().error.empty()) Remember(decision.ready.back().request);
  }
  if (std::ranges::all_of(joined_, [](bool joined) { return joined; })) {
    decision.last_joined = last_joined_;
    joined_.assign(ranks_, false);
  }
  return decision;
}

std::vector<Stall> Negotiation::Stalls(Clock::time_point now) const {
  std::vector<Stall> stalls;
  for (const std::string& name : order_) {
    const Pending& pending = pending_.at(name);
    Stall stall;
    stall.name = name;
    stall.age = std::chrono::duration_cast<std::chrono::milliseconds>(now - pending.since);
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (pending.by_rank[rank]) {
        stall.kind = pending.by_rank[rank]->kind;
      } else if (!joined_[rank]) {
        stall.missing.push_back(names_[rank]);
      }
    }
    stalls.push_back(std::move(stall));
  }
  return stalls;
}

std::vector<std::vector<Piece>> Fuse(const std::vector<Response>& responses,
                                     int64_t threshold_bytes) {
  using Key = std::tuple<at::ScalarType, Op, double, double>;
  struct Open {
    size_t message = 0;
    int64_t bytes = 0;
  };
  std::vector<std::vector<Piece>> messages;
  std::map<Key, Open> open;
  for (size_t i = 0; i < responses.size(); ++i) {
    const Request& request = responses[i].request;
    if (request.kind != Kind::kAllreduce || !responses[i].error.empty()) continue;
    // Tensors of the same dtype share messages. A group may have several dtypes, so its tensors are
    // divided by dtype.
    std::map<at::ScalarType, std::vector<size_t>> by_dtype;
    for (size_t t = 0; t < request.tensors.size(); ++t) {
      by_dtype[request.tensors[t].dtype].push_back(t);
    }
    for (const auto& [dtype, tensors] : by_dtype) {
      int64_t bytes = 0;
      for (const size_t t : tensors) bytes += request.tensors[t].bytes();
      const Key key{dtype, request.op, request.prescale_factor, request.postscale_factor};
      auto found = open.find(key);
      if (found == open.end() || found->second.bytes + bytes > threshold_bytes) {
        messages.emplace_back();
        found = open.insert_or_assign(key, Open{messages.size() - 1, 0}).first;
      }
      found->second.bytes += bytes;
      for (const size_t t : tensors) messages[found->second.message].push_back({i, t});
    }
  }
  return messages;
}

}  // namespace dslaunch::horovod
