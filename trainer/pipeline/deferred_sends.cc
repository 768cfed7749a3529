#include "trainer/pipeline/deferred_sends.h"

#include <algorithm>

namespace dslaunch {
namespace {

int PartOf(const PipelineSchedule& schedule, const ChunkPlace& place) {
  return place.chunk * schedule.stages + place.stage;
}

ChunkPlace PlaceOf(const PipelineSchedule& schedule, int part) {
  return {part % schedule.stages, part / schedule.stages};
}

// A forward pass that reads activations of another stage.
struct Reader {
  size_t action = 0;  // index of the pass in the stage's list of actions
  int chunk = 0;
  size_t exchanged = 0;  // number of earlier sends to and receives from the other stage
};

std::vector<Reader> ReadersOf(const PipelineSchedule& schedule, int stage, int sender) {
  std::vector<Reader> readers;
  size_t exchanged = 0;
  const std::vector<Action>& actions = schedule.actions[static_cast<size_t>(stage)];
  for (size_t i = 0; i < actions.size(); ++i) {
    const ChunkPlace place{stage, actions[i].chunk};
    if (IsExchange(actions[i].kind) && actions[i].peer == sender) {
      ++exchanged;
    } else if (actions[i].kind == ActionKind::kForward && !IsFirst(place) &&
               Before(schedule, place).stage == sender) {
      readers.push_back({i, place.chunk, exchanged});
    }
  }
  return readers;
}

}  // namespace

bool IsExchange(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kReceiveActivation ||
         kind == ActionKind::kSendGradient || kind == ActionKind::kReceiveGradient;
}

ChunkPlace After(const PipelineSchedule& schedule, const ChunkPlace& place) {
  return PlaceOf(schedule, PartOf(schedule, place) + 1);
}

ChunkPlace Before(const PipelineSchedule& schedule, const ChunkPlace& place) {
  return PlaceOf(schedule, PartOf(schedule, place) - 1);
}

bool IsFirst(const ChunkPlace& place) { return place == ChunkPlace{}; }

bool IsLast(const PipelineSchedule& schedule, const ChunkPlace& place) {
  return PartOf(schedule, place) == schedule.stages * schedule.virtual_stages - 1;
}

std::vector<std::vector<ChunkPlace>> DeferredSendsAfter(const PipelineSchedule& schedule,
                                                        int stage) {
  const std::vector<Action>& actions = schedule.actions[static_cast<size_t>(stage)];
  std::vector<std::vector<ChunkPlace>> deferred_sends(actions.size());
  for (int peer = 0; peer < schedule.stages; ++peer) {
    if (peer == stage) continue;
    std::vector<size_t> exchanges;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (IsExchange(actions[i].kind) && actions[i].peer == peer) exchanges.push_back(i);
    }
    const std::vector<Reader> own = ReadersOf(schedule, stage, peer);
    for (const Reader& reader : ReadersOf(schedule, peer, stage)) {
      size_t after = exchanges.at(reader.exchanged - 1);
      for (const Reader& first : own) {
        if (stage > peer && first.exchanged == reader.exchanged) after = first.action;
      }
      deferred_sends[after].push_back({peer, reader.chunk});
    }
  }
  return deferred_sends;
}

}  // namespace dslaunch
