#include "tests/sim/faults.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_incarnation.h"

namespace dslaunch::sim {
namespace {

constexpr int64_t kFaultsWithinMs = 45'000;
constexpr int64_t kBackAfterMs = 40'000;

class Faults {
 public:
  explicit Faults(World& world) : world_(world), random_(world.random) {}

  // Makes one random fault happen now.
  void Happen() {
    const auto node = static_cast<uint32_t>(random_.Between(0, world_.job.size() - 1));
    // The rendezvous' host is hit more often than other nodes, because most recovery code depends
    // on the host.
    const uint32_t target = random_.OneIn(3) ? Decider().value_or(node) : node;
    switch (random_.Between(0, 16)) {
      case 0:
        return KillAgent(target);
      case 1:
        return KillSupervisor(target);
      case 2:
        return KillBoth(target);
      case 3:
        return CutPower(target);
      case 4:
        return PauseAgent(target);
      case 5:
        return StallDisk(target);
      case 6:
        return PauseMachine(target);
      case 7:
        return JumpClock(target);
      case 8:
        return FillDisk(target);
      case 9:
        return ResetConnection(target);
      case 10:
      case 11:
        return CutOff(target);
      case 12:
        return CutFromRendezvous();
      case 13:
        return CutPair(target, world_.network.front_end());
      case 14:
        return PauseFrontEnd();
      case 15:
        return Leave(target);
      default:
        return random_.OneIn(3) ? KillFrontEnd() : CutPair(target, node);
    }
  }

  // Cuts node 0 off from all other nodes in one direction, for ever. The front end is included
  // unless the job exempts it.
  void CutHost() {
    const Job& job = world_.job;
    Log(world_.NameOf(0), job.host_hears ? "reaches no other node" : "hears no other node");
    for (Place other = 1; other <= world_.network.front_end(); ++other) {
      if (other == world_.network.front_end() && job.host_sees_front_end) continue;
      if (!job.host_is_heard) world_.network.Cut(0, other, Timeline::kNever);
      if (!job.host_hears) world_.network.Cut(other, 0, Timeline::kNever);
    }
  }

  void Interrupt() {
    Log("front end", "the user interrupts");
    world_.timeline.Do(world_.front_end->process(),
                       [this_end = world_.front_end.get()] { this_end->Interrupt(); });
  }

 private:
  void Log(const std::string& party, const std::string& what) {
    world_.Log("FAULT", [&] { return party + ": " + what; });
  }
  void LogFor(const std::string& party, const std::string& what, int64_t duration) {
    world_.Log("FAULT",
               [&] { return party + ": " + what + " for " + std::to_string(duration) + " ms"; });
  }

  // Returns the newest incarnation on `node`; nullptr if the node has none yet.
  NodeIncarnation* IncarnationOf(uint32_t node) {
    for (auto incarnation = world_.incarnations.rbegin(); incarnation != world_.incarnations.rend();
         ++incarnation) {
      if ((*incarnation)->node() == node) return incarnation->get();
    }
    return nullptr;
  }
  std::optional<uint32_t> Decider() {
    for (auto incarnation = world_.incarnations.rbegin(); incarnation != world_.incarnations.rend();
         ++incarnation) {
      if ((*incarnation)->server() != nullptr && !(*incarnation)->is_over())
        return (*incarnation)->node();
    }
    return std::nullopt;
  }

  void KillAgent(uint32_t node) {
    Log(world_.NameOf(node), "its agent is killed");
    if (NodeIncarnation* incarnation = IncarnationOf(node)) incarnation->KillAgent();
  }
  void KillSupervisor(uint32_t node) {
    Log(world_.NameOf(node), "its supervisor is killed");
    if (NodeIncarnation* incarnation = IncarnationOf(node)) incarnation->KillSupervisor();
  }
  void KillBoth(uint32_t node) {
    Log(world_.NameOf(node), "its supervisor and agent are killed");
    if (NodeIncarnation* incarnation = IncarnationOf(node)) incarnation->KillBoth();
  }

  // Stops the agent as after SIGTERM to the node's own command; the command exits soon after.
  void Leave(uint32_t node) {
    Log(world_.NameOf(node), "leaves");
    NodeIncarnation* const incarnation = IncarnationOf(node);
    if (incarnation == nullptr) return;
    world_.timeline.Do(incarnation->loop(), [incarnation] {
      incarnation->Stop(MakeCause(pb::Cause::NODE_LEFT, 0, ExitCode::kInterrupted, "it left"),
                        /*kill_now=*/false);
    });
    world_.timeline.After(random_.Between(0, 500), nullptr,
                          [incarnation] { incarnation->ResetLink(); });
  }

  void CutPower(uint32_t node) {
    Log(world_.NameOf(node), "loses power");
    world_.machines[node].off = true;
    for (const auto& incarnation : world_.incarnations) {
      if (incarnation->node() == node) incarnation->LosePower();
    }
    if (random_.OneIn(2)) return;
    world_.timeline.After(random_.Between(1'000, kBackAfterMs), nullptr, [&world = world_, node] {
      world.Log("FAULT", [&] { return world.NameOf(node) + ": has power again"; });
      world.machines[node].off = false;
      for (const auto& incarnation : world.incarnations) {
        if (incarnation->node() == node) incarnation->GetPowerBack();
      }
    });
  }

  void PauseAgent(uint32_t node) {
    const int64_t duration = random_.Between(500, 20'000);
    LogFor(world_.NameOf(node), "its agent is stopped", duration);
    Machine& machine = world_.machines[node];
    machine.went_on_at = std::max(machine.went_on_at, world_.timeline.now() + duration);
    NodeIncarnation* const incarnation = IncarnationOf(node);
    if (incarnation == nullptr) return;
    world_.timeline.Stop(incarnation->loop(), world_.timeline.now() + duration);
    world_.timeline.Stop(incarnation->threads(), world_.timeline.now() + duration);
  }

  // Makes the agent's loop wait for its disk while its other threads, such as the heart, continue.
  // So tasks of the loop, such as checking the lease, are delayed.
  void StallDisk(uint32_t node) {
    const int64_t duration = random_.Between(500, 40'000);
    LogFor(world_.NameOf(node), "its agent's loop waits for the disk", duration);
    if (NodeIncarnation* incarnation = IncarnationOf(node))
      world_.timeline.Stop(incarnation->loop(), world_.timeline.now() + duration);
  }

  // Sometimes stalls the disk too, in a detached job. A stalled loop reads no decisions of the
  // rendezvous, so only the lease ends the node's ranks. Only the fence of the next rendezvous
  // waits for that.
  void MaybeStallDiskToo(uint32_t node) {
    if (world_.job.detached && random_.OneIn(3)) StallDisk(node);
  }

  void PauseMachine(uint32_t node) {
    const int64_t duration = random_.Between(500, 60'000);
    LogFor(world_.NameOf(node), "the machine stands still", duration);
    Machine& machine = world_.machines[node];
    machine.stood_still = true;
    machine.went_on_at = std::max(machine.went_on_at, world_.timeline.now() + duration);
    for (const auto& incarnation : world_.incarnations) {
      if (incarnation->node() != node) continue;
      for (Process* process :
           {&incarnation->loop(), &incarnation->threads(), &incarnation->supervisor()})
        world_.timeline.Stop(*process, world_.timeline.now() + duration);
    }
  }

  void JumpClock(uint32_t node) {
    const int64_t jump =
        random_.OneIn(2) ? random_.Between(100, 6'000) : random_.Between(6'000, 3'600'000);
    const bool front_end = random_.OneIn(4);
    LogFor(front_end ? "front end" : world_.NameOf(node), "the clock jumps ahead", jump);
    Machine& machine = front_end ? world_.front_end_machine : world_.machines[node];
    machine.clock.ahead_ms += jump;
    machine.stood_still = true;
    machine.went_on_at = std::max(machine.went_on_at, world_.timeline.now());
  }

  void FillDisk(uint32_t node) {
    const int64_t duration = random_.Between(5'000, 60'000);
    LogFor(world_.NameOf(node), "the disk is full", duration);
    world_.machines[node].disk_full_until = world_.timeline.now() + duration;
  }

  void ResetConnection(uint32_t node) {
    const bool link = random_.OneIn(4);
    Log(world_.NameOf(node),
        std::string("its connection to the ") + (link ? "front end" : "rendezvous") + " is reset");
    NodeIncarnation* const incarnation = IncarnationOf(node);
    if (incarnation != nullptr) link ? incarnation->ResetLink() : incarnation->ResetRendezvous();
  }

  // Returns a random duration. Half of the cuts are short, because a long cut always makes the job
  // give up the nodes.
  int64_t CutDuration() {
    return random_.OneIn(2) ? random_.Between(500, 12'000) : random_.Between(12'000, 90'000);
  }

  // Cuts `node` off from all other nodes and the front end, in one direction or both.
  void CutOff(uint32_t node) {
    const int64_t duration = CutDuration();
    const int64_t until = world_.timeline.now() + duration;
    const int64_t directions = random_.Between(0, 3);
    LogFor(world_.NameOf(node),
           directions == 0   ? "is not heard by anybody"
           : directions == 1 ? "hears nobody"
                             : "is cut off",
           duration);
    MaybeStallDiskToo(node);
    for (Place other = 0; other <= world_.network.front_end(); ++other) {
      if (other == node) continue;
      if (directions != 1) world_.network.Cut(node, other, until);
      if (directions != 0) world_.network.Cut(other, node, until);
    }
  }

  void CutPair(Place a, Place b) {
    const int64_t duration = CutDuration();
    const int64_t until = world_.timeline.now() + duration;
    LogFor(world_.NameOf(a), "is cut from " + world_.NameOf(b), duration);
    world_.network.Cut(a, b, until);
    if (!random_.OneIn(3)) world_.network.Cut(b, a, until);
  }

  // Splits the network into two halves: the rendezvous with some nodes, and the other nodes. The
  // front end is in either half, or is connected to both.
  void CutFromRendezvous() {
    const std::optional<uint32_t> decider = Decider();
    if (!decider) return;
    const int64_t duration = CutDuration();
    const int64_t until = world_.timeline.now() + duration;
    std::vector<bool> with_it(world_.job.size() + 1);
    for (Place place = 0; place < with_it.size(); ++place)
      with_it[place] = place == *decider || random_.OneIn(2);
    MaybeStallDiskToo(*decider);
    const bool front_end_sees_both = random_.OneIn(2);
    LogFor(world_.NameOf(*decider), "it and some others are cut from the rest", duration);
    for (Place a = 0; a < with_it.size(); ++a) {
      for (Place b = 0; b < with_it.size(); ++b) {
        const Place front_end = world_.network.front_end();
        if (front_end_sees_both && (a == front_end || b == front_end)) continue;
        if (with_it[a] != with_it[b]) world_.network.Cut(a, b, until);
      }
    }
  }

  void PauseFrontEnd() {
    const int64_t duration = random_.Between(500, 60'000);
    LogFor("front end", "is stopped", duration);
    world_.timeline.Stop(world_.front_end->process(), world_.timeline.now() + duration);
  }

  void KillFrontEnd() {
    if (world_.front_end->is_over()) return;
    const bool power = random_.OneIn(2);
    Log("front end", power ? "loses power" : "is killed");
    power ? world_.front_end->LosePower() : world_.front_end->Crash();
  }

  World& world_;
  Random& random_;
};

}  // namespace

void PlanFaults(World& world) {
  const auto faults = std::make_shared<Faults>(world);
  if (world.job.host_is_cut_at_ms >= 0) {
    world.timeline.At(world.job.host_is_cut_at_ms, nullptr, [faults] { faults->CutHost(); });
  }
  for (int64_t i = 0; i < world.job.faults; ++i) {
    world.timeline.At(world.random.Between(0, kFaultsWithinMs), nullptr,
                      [faults] { faults->Happen(); });
  }
  if (world.job.user_interrupts) {
    world.timeline.At(world.random.Between(0, kFaultsWithinMs), nullptr,
                      [faults] { faults->Interrupt(); });
  }
}

}  // namespace dslaunch::sim
