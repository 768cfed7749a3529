#include "trainer/resume/adapters.h"

#include <filesystem>
#include <map>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/weights/adapter_record.h"

namespace dslaunch {

std::string DescribeAdapters(const Recipe& recipe, const ProcessGroup& group) {
  if (!recipe.lora) return "";
  AdapterRecord record = {.lora = *recipe.lora, .base = {}, .base_sums = {}};
  record.lora.init_weights.clear();
  const std::string& base = recipe.run.init_weights;
  if (base.empty()) return FormatAdapterRecord(record);
  record.base = std::filesystem::absolute(base).lexically_normal();
  AdapterRecord own = record;
  ThrowFirstFailure(GatherTexts(
      group,
      FailureOf([&] { own.base_sums = SumWeights(base, group.rank(), group.world_size()); })));
  for (const std::string& part : GatherTexts(group, FormatAdapterRecord(own))) {
    record.base_sums.merge(ParseAdapterRecord(part, "another rank").base_sums);
  }
  return FormatAdapterRecord(record);
}

void CheckAdapters(const Manifest& saved, const std::string& own, const std::string& place) {
  if (saved.adapters.empty() && own.empty()) return;
  if (own.empty()) {
    RefuseInput(place +
                ": holds adapters of a run with lora; give the recipe its section lora, or merge "
                "them: dslaunch checkpoint export --merge_lora");
  }
  if (saved.adapters.empty()) {
    RefuseInput(place +
                ": holds whole weights, but the recipe has lora; export them (dslaunch checkpoint "
                "export) and give the folder as model.from, or leave lora out");
  }
  const std::string difference =
      AdapterDifference(ParseAdapterRecord(saved.adapters, place), ParseAdapterRecord(own, "lora"));
  if (!difference.empty()) RefuseInput(place + ": " + difference);
}

}  // namespace dslaunch
