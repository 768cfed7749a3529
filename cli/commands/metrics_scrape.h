// Collects the metrics of running jobs from their nodes, once: `dslaunch ps --openmetrics`.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/metrics/job_metrics.h"
#include "cli/session/job_record.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct ScrapedMetrics {
  std::string text;                   // OpenMetrics
  std::vector<std::string> troubles;  // a sentence for each node that did not answer in time
};

// Attaches to every node of the jobs at once, without output of ranks, and takes its newest state
// and one sample. Nodes that have not answered by `deadline` have no samples.
ScrapedMetrics ScrapeMetrics(const std::vector<JobRecord>& jobs, const AgentBinary& agent,
                             Deadline deadline);

}  // namespace dslaunch
