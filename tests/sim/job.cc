#include "tests/sim/job.h"

#include <algorithm>

#include "proto/wire/node_list.h"
#include "rendezvous/majority.h"
#include "rendezvous/quorum.h"

namespace dslaunch::sim {
namespace {

// No fault lasts longer (tests/sim/faults.cc), except cuts of the network and machines that do not
// come back.
constexpr int64_t kLongestFaultMs = 60'000;

// Returns timeouts like the command line's. Some are shorter, but with the same relations: for
// example, a lease is longer than several silences.
pb::Timeouts DrawTimeouts(Random& random) {
  pb::Timeouts timeouts;
  timeouts.set_grace_ms(2'000);
  timeouts.set_join_ms(20'000);
  timeouts.set_ready_ms(10'000);
  timeouts.set_teardown_ms(2'000);
  timeouts.set_heartbeat_ms(random.OneIn(4) ? 1'000 : 2'000);
  timeouts.set_suspect_ms(3'000);
  timeouts.set_dead_ms(6'000);
  timeouts.set_lease_ms(random.OneIn(2) ? 30'000 : 15'000);
  if (random.OneIn(4)) timeouts.set_check_ms(10'000);
  return timeouts;
}

pb::Policy DrawPolicy(Random& random, uint32_t regular) {
  pb::Policy policy;
  policy.set_max_restarts(static_cast<uint32_t>(random.Between(0, 4)));
  policy.set_backoff_ms(static_cast<uint32_t>(random.Between(0, 2'000)));
  policy.set_max_backoff_ms(5'000);
  policy.set_min_nodes(static_cast<uint32_t>(random.Between(0, regular)));
  policy.set_max_nodes(regular);
  policy.set_node_failures(static_cast<uint32_t>(random.Between(0, 2)));
  policy.set_cooldown_ms(60'000);
  policy.set_on_join(random.OneIn(2) ? pb::Policy::AT_ONCE : pb::Policy::AT_RESTART);
  policy.set_hang_ms(random.OneIn(2) ? 20'000 : 0);
  policy.set_on_hang(random.OneIn(2) ? pb::Policy::KILL : pb::Policy::RESTART);
  return policy;
}

}  // namespace

Job DrawJob(Random& random) {
  Job job;
  const auto regular = static_cast<uint32_t>(random.Between(1, 5));
  const auto spares = static_cast<uint32_t>(random.Between(0, 2));
  job.prepare.mutable_job()->set_job_id("b0b");
  job.prepare.mutable_job()->mutable_ranks()->mutable_program()->add_argv("python3");
  for (uint32_t index = 0; index < regular + spares; ++index) {
    pb::Node& node = job.nodes.emplace_back();
    node.set_name("node" + std::to_string(index));
    node.set_slots(static_cast<uint32_t>(random.Between(1, 3)));
    node.set_spare(index >= regular);
    Host& planned = job.plan.nodes.emplace_back();
    planned.name = node.name();
    planned.slots = static_cast<int>(node.slots());
    planned.spare = node.spare();
    if (random.OneIn(12)) job.absent.push_back(index);
  }
  *job.prepare.mutable_job()->mutable_nodes() = PackNodes(job.nodes);
  *job.prepare.mutable_job()->mutable_timeouts() = DrawTimeouts(random);
  if (job.prepare.job().timeouts().check_ms() > 0) job.prepare.mutable_job()->mutable_node_check();
  // Mostly sets a policy with restarts, because a job that ends at its first failure exercises
  // little code.
  if (!random.OneIn(6)) *job.prepare.mutable_job()->mutable_policy() = DrawPolicy(random, regular);
  const NodeBounds bounds = BoundsOf(job.nodes, job.policy().min_nodes(), job.policy().max_nodes());
  job.plan.ranks = NumberRanksOf(job.plan.nodes);
  job.plan.launcher = Launcher::kSsh;
  job.plan.min_nodes = static_cast<int>(bounds.min);
  job.plan.max_nodes = static_cast<int>(bounds.max);
  job.reports_steps = random.OneIn(2);
  job.rank_fails_one_in = random.Between(2, 15);
  job.faults = random.OneIn(6) ? 0 : random.Between(1, 4);
  job.user_interrupts = random.OneIn(20);
  return job;
}

Job DrawDetachedJob(Random& random) {
  constexpr uint32_t kLeastNodes = 3;
  Job job = DrawJob(random);
  while (job.size() - job.absent.size() < kLeastNodes || job.policy().max_restarts() == 0)
    job = DrawJob(random);
  job.detached = true;
  job.user_interrupts = false;
  job.rank_fails_one_in = 15;
  job.longest_rank_ms = 90'000;
  return job;
}

Job DrawPerNodeJob(Random& random) {
  const auto is_spare = [](const Host& node) { return node.spare; };
  Job job = DrawJob(random);
  while (job.size() < 2 || !job.absent.empty() || std::ranges::any_of(job.plan.nodes, is_spare))
    job = DrawJob(random);
  job.plan.launcher = Launcher::kPerNode;
  job.user_interrupts = false;
  job.join_timeout_ms = 120'000;
  return job;
}

Job DrawHalfCutJob(Random& random, bool detached) {
  Job job = DrawDetachedJob(random);
  while (!job.absent.empty() || job.policy().min_nodes() == 0 ||
         job.policy().min_nodes() + 1 > job.policy().max_nodes())
    job = DrawDetachedJob(random);
  job.detached = detached;
  job.prepare.mutable_job()->mutable_policy()->set_hang_ms(0);
  job.prepare.mutable_job()->mutable_policy()->set_on_join(pb::Policy::AT_RESTART);
  job.faults = 0;
  job.is_calm = true;
  job.shortest_rank_ms = 40'000;
  job.host_is_cut_at_ms = random.Between(15'000, 35'000);
  job.host_hears = random.OneIn(2);
  job.host_is_heard = !job.host_hears;
  job.host_sees_front_end = random.OneIn(2);
  return job;
}

int64_t Job::EmptyWithinMs() const {
  const pb::Timeouts& times = timeouts();
  const int64_t emptying = times.grace_ms() + times.teardown_ms();
  // Covers the end of the lease or the wait for another rendezvous; the rest is the time until
  // every node has received the decision.
  return 3 * int64_t{times.lease_ms()} + 4 * (emptying + times.dead_ms()) + times.join_ms() +
         2 * kLongestFaultMs;
}

int64_t Job::LongestMs() const {
  const pb::Timeouts& times = timeouts();
  const int64_t emptying = times.grace_ms() + times.teardown_ms() + times.dead_ms();
  const int64_t attempts = policy().max_restarts() + most_reconnects + size() + 2;
  const int64_t attempt_ms = times.ready_ms() + longest_rank_ms + policy().hang_ms() +
                             2 * emptying + policy().max_backoff_ms() + times.join_ms();
  const int64_t election_ms =
      MajorityFence(times).count() + times.join_ms() + int64_t{times.dead_ms()} * (2 + size());
  const int64_t failovers_ms = (policy().max_restarts() + 1) * (detached ? 2 * election_ms : 0) +
                               policy().max_restarts() * (times.lease_ms() + 3 * emptying);
  return join_timeout_ms + attempts * attempt_ms + failovers_ms + (faults + 1) * kLongestFaultMs +
         EmptyWithinMs();
}

}  // namespace dslaunch::sim
