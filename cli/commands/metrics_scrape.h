// Collects the metrics of running jobs from their nodes once, for `dslaunch ps --openmetrics`.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/metrics/job_metrics.h"
#include "cli/session/job_record.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct ScrapedMetrics {
  std::string text;                   // metrics in the OpenMetrics format
  std::vector<std::string> troubles;  // one sentence for each node that did not answer in time
};

// Attaches to every node of the jobs at once, without output of ranks, and reads the node's newest
// state and one sample. Nodes that have not answered by `deadline` have no samples.
ScrapedMetrics ScrapeMetrics(const std::vector<JobRecord>& jobs, const AgentBinary& agent,
                             Deadline deadline);

}  // namespace dslaunch
