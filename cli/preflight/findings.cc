#include "cli/preflight/findings.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "agent/probe/node_faults.h"
#include "base/text/sanitize.h"
#include "base/text/text_table.h"

namespace dslaunch {
namespace {

void Add(std::vector<Figure>& figures, FigureKind kind, size_t node, uint64_t value,
         const std::string& part = "", double scale = 1, uint32_t starved_permille = 0) {
  if (value == 0) return;
  figures.push_back({kind, node, part, scale * static_cast<double>(value),
                     std::min(starved_permille, 1000u) / 1000.0});
}

const char* HintOf(FigureKind kind) {
  switch (kind) {
    case FigureKind::kCoreSpeed:
      return "look at its clock (cpupower frequency-info) and temperature";
    case FigureKind::kCpuShare:
      return "end what computes there (top), or raise its cgroup's CPU quota (cpu.max)";
    case FigureKind::kMemory:
      return "look for missing memory modules (dmidecode -t memory) and other programs there";
    case FigureKind::kLogFolder:
    case FigureKind::kCheckpointFolder:
      return "look at the disk there (iostat -x 1, dmesg), or give a folder on another one";
    case FigureKind::kGemm:
    case FigureKind::kDeviceMemory:
      return "look at its clocks, power limit and temperature (nvidia-smi -q -d PERFORMANCE,CLOCK)";
    case FigureKind::kToDevice:
    case FigureKind::kFromDevice:
      return "look at its PCIe link there (nvidia-smi -q, PCI: Link Width and Generation)";
    case FigureKind::kSending:
    case FigureKind::kReceiving:
    case FigureKind::kRoundTrip:
      break;
  }
  return "look at its network interface and cable (ethtool, ip -s link, tc qdisc)";
}

class Judge {
 public:
  explicit Judge(const Bench& bench) : bench_(bench) {}

  std::vector<BenchFinding> Run() && {
    for (node_ = 0; node_ < bench_.nodes.size(); ++node_) {
      if (!bench_.nodes[node_].measured) continue;
      for (NodeFault& fault : FaultsOf(*bench_.nodes[node_].measured, bench_.gpus_needed)) {
        findings_.push_back(
            {node_, std::move(fault.check), true, std::move(fault.seen), std::move(fault.hint)});
      }
      CheckLinks();
    }
    AddSlow();
    std::ranges::stable_sort(findings_, {}, &BenchFinding::node);
    return std::move(findings_);
  }

 private:
  void Fail(std::string check, const std::string& seen, std::string hint) {
    findings_.push_back(
        {node_, std::move(check), true, SanitizeForTerminal(seen), std::move(hint)});
  }

  // Reports nodes that none of their partners reached although another node reached a partner.
  void CheckLinks() {
    bool tried = false;
    std::string trouble;
    bool blames_partner = true;
    for (const MeasuredLink& link : bench_.links) {
      if (link.pair.serving != node_ && link.pair.measuring != node_) continue;
      if (link.trouble.empty()) return;
      tried = true;
      trouble = link.trouble;
      const size_t partner = link.pair.serving == node_ ? link.pair.measuring : link.pair.serving;
      blames_partner = blames_partner && !Works(partner);
    }
    const bool is_only_pair = bench_.nodes.size() == 2;
    if (!tried || (blames_partner && !is_only_pair)) return;
    Fail("network", "no other node can exchange data with it: " + trouble,
         "let the nodes reach each other on all TCP ports (firewall, routes)");
  }
  bool Works(size_t node) const {
    return std::ranges::any_of(bench_.links, [&](const MeasuredLink& link) {
      return link.trouble.empty() && (link.pair.serving == node || link.pair.measuring == node);
    });
  }

  void AddSlow() {
    for (const SlowFigure& slow : FindSlow(bench_.figures, bench_.first)) {
      const Figure& figure = slow.figure;
      findings_.push_back(
          {figure.node, KindName(figure.kind), false,
           SanitizeForTerminal((figure.part.empty() ? "" : figure.part + ": ") +
                               FigureText(figure.kind, figure.value) + ", the median is " +
                               FigureText(figure.kind, slow.median)),
           HintOf(figure.kind)});
    }
  }

  const Bench& bench_;
  size_t node_ = 0;
  std::vector<BenchFinding> findings_;
};

}  // namespace

std::vector<Figure> FiguresOf(const pb::NodeMeasurement& measured, size_t node) {
  std::vector<Figure> figures;
  Add(figures, FigureKind::kCoreSpeed, node, measured.core_flops());
  Add(figures, FigureKind::kCpuShare, node, std::min(measured.cpu_share_permille(), 1000u), "",
      0.001);
  Add(figures, FigureKind::kMemory, node, measured.memory_bytes_per_s(), "", 1,
      measured.memory_starved_permille());
  for (const pb::FolderSpeed& folder : measured.folders()) {
    Add(figures,
        folder.use() == pb::MeasuredFolder::LOGS ? FigureKind::kLogFolder
                                                 : FigureKind::kCheckpointFolder,
        node, folder.bytes_per_s(), folder.path(), 1, folder.starved_permille());
  }
  for (const pb::DeviceSpeed& device : measured.devices()) {
    Add(figures, FigureKind::kGemm, node, device.gemm_flops(), device.name());
    Add(figures, FigureKind::kToDevice, node, device.to_device_bytes_per_s(), device.name());
    Add(figures, FigureKind::kFromDevice, node, device.from_device_bytes_per_s(), device.name());
    Add(figures, FigureKind::kDeviceMemory, node, device.memory_bytes_per_s(), device.name());
  }
  return figures;
}

std::vector<Figure> FiguresOf(const pb::LinkMeasurement& measured, const NodePair& pair) {
  std::vector<Figure> figures;
  if (!measured.trouble().empty()) return figures;
  for (const size_t node : {pair.measuring, pair.serving}) {
    const bool measures = node == pair.measuring;
    // A direction in which no bytes arrived in time counts as extremely slow, not as unmeasured.
    const auto add = [&](FigureKind kind, bool is_sent) {
      const uint64_t bytes =
          is_sent ? measured.sent_bytes_per_s() : measured.received_bytes_per_s();
      Add(figures, kind, node, std::max<uint64_t>(bytes, 1), "", 1,
          is_sent ? measured.sent_starved_permille() : measured.received_starved_permille());
    };
    add(FigureKind::kSending, measures);
    add(FigureKind::kReceiving, !measures);
    Add(figures, FigureKind::kRoundTrip, node, measured.round_trip_ns(), "", 1e-9,
        measured.starved_permille());
  }
  return figures;
}

std::vector<BenchFinding> JudgeBench(const Bench& bench) { return Judge(bench).Run(); }

std::string BenchTable(const Bench& bench, const std::string& indent) {
  std::vector<FigureKind> kinds;
  for (size_t i = 0; i < kFigureKinds; ++i) {
    const auto kind = static_cast<FigureKind>(i);
    if (MedianOf(bench.figures, kind) > 0) kinds.push_back(kind);
  }
  std::vector<std::vector<std::string>> rows = {{"node"}};
  for (const FigureKind kind : kinds) rows.front().push_back(KindName(kind));
  for (size_t node = 0; node < bench.nodes.size(); ++node) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(SanitizeForTerminal(bench.nodes[node].name));
    for (const FigureKind kind : kinds) {
      const Figure* worst = nullptr;
      for (const Figure& figure : bench.figures) {
        if (figure.node != node || figure.kind != kind) continue;
        if (worst == nullptr || figure.value < worst->value) worst = &figure;
      }
      row.push_back(worst == nullptr ? "-" : FigureText(kind, worst->value));
    }
  }
  if (bench.nodes.size() > 1) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back("median");
    for (const FigureKind kind : kinds)
      row.push_back(FigureText(kind, MedianOf(bench.figures, kind)));
  }
  return kinds.empty() ? "" : TextTable(rows, indent);
}

}  // namespace dslaunch
