#include "cli/commands/metrics_scrape.h"

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "cli/commands/node_stream.h"
#include "net/loop_poster.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {
namespace {

constexpr uint32_t kSampleMs = 250;  // interval of samples; GPUs may be missing in the first sample

// The stream of events of one node, until its sample has arrived.
struct Scrape {
  size_t job = 0;
  size_t node = 0;
  bool is_over = false;
  std::string trouble;
  std::unique_ptr<NodeStream> stream;
};

class Scraper {
 public:
  Scraper(const std::vector<JobRecord>& jobs, const AgentBinary& agent, Deadline deadline)
      : jobs_(jobs), poster_(std::make_shared<LoopPoster>(loop_)) {
    for (size_t job = 0; job < jobs_.size(); ++job) {
      std::vector<std::string> names;
      for (const NodeTarget& node : jobs_[job].nodes) names.push_back(node.name);
      metrics_.emplace_back(jobs_[job].job_id, std::move(names), jobs_[job].started_unix_ms);
      for (size_t node = 0; node < jobs_[job].nodes.size(); ++node)
        scrapes_.push_back({.job = job, .node = node, .trouble = "", .stream = nullptr});
    }
    awaited_ = scrapes_.size();
    for (Scrape& scrape : scrapes_) Open(scrape, agent, deadline);
  }

  ~Scraper() {
    poster_->Close();
    for (Scrape& scrape : scrapes_) {
      if (scrape.stream && scrape.stream->inspection() != nullptr)
        scrape.stream->inspection()->End();
    }
  }

  ScrapedMetrics Run(Deadline deadline) {
    asio::steady_timer limit(loop_, deadline.Left());
    limit.async_wait([this](const asio::error_code& error) {
      if (!error) loop_.stop();
    });
    if (awaited_ > 0) loop_.run();
    ScrapedMetrics scraped;
    std::vector<const JobMetrics*> jobs;
    for (const JobMetrics& job : metrics_) jobs.push_back(&job);
    scraped.text = MetricsText(jobs, MetricsFormat::kOpenMetrics, Clock::now());
    for (const Scrape& scrape : scrapes_) {
      const std::string& name = jobs_[scrape.job].nodes[scrape.node].name;
      if (!scrape.trouble.empty())
        scraped.troubles.push_back(scrape.trouble);
      else if (!scrape.is_over)
        scraped.troubles.push_back(name + " did not answer in time");
    }
    return scraped;
  }

 private:
  void Open(Scrape& scrape, const AgentBinary& agent, Deadline deadline) {
    auto request = std::make_shared<pb::AttachRequest>();  // read by gRPC when the call starts
    request->mutable_samples()->set_every_ms(kSampleMs);
    NodeStream::Handlers handlers;
    handlers.start = [request](const std::shared_ptr<grpc::Channel>& channel,
                               grpc::ClientContext* context, NodeStream::Reactor* reactor) {
      pb::Agent::NewStub(channel)->async()->Attach(context, request.get(), reactor);
    };
    handlers.event = [this, &scrape](const pb::NodeEvent& event) {
      JobMetrics& job = metrics_[scrape.job];
      job.OnEvent(scrape.node, event, Clock::now());
      if (job.HasSample(scrape.node)) Finish(scrape);
    };
    handlers.log = [](const pb::LogChunk&, std::function<void()> go_on) { go_on(); };
    handlers.over = [this, &scrape](const Result<void>& result) {
      if (!result.ok()) scrape.trouble = result.error().message;
      Finish(scrape);
    };
    handlers.broke_rules = [this, &scrape](const std::string& what) {
      scrape.trouble = jobs_[scrape.job].nodes[scrape.node].name + ": its agent sent " + what;
      Finish(scrape);
    };
    scrape.stream = std::make_unique<NodeStream>(poster_, std::move(handlers));
    scrape.stream->Open(jobs_[scrape.job], scrape.node, AgentRole::Kind::kAttach, agent, deadline);
  }

  void Finish(Scrape& scrape) {
    if (std::exchange(scrape.is_over, true)) return;
    if (--awaited_ == 0) loop_.stop();
  }

  const std::vector<JobRecord>& jobs_;
  asio::io_context loop_;
  const std::shared_ptr<LoopPoster> poster_;
  std::vector<JobMetrics> metrics_;  // metrics of each job, indexed by job
  std::vector<Scrape> scrapes_;
  size_t awaited_ = 0;
};

}  // namespace

ScrapedMetrics ScrapeMetrics(const std::vector<JobRecord>& jobs, const AgentBinary& agent,
                             Deadline deadline) {
  Scraper scraper(jobs, agent, deadline);
  return scraper.Run(deadline);
}

}  // namespace dslaunch
