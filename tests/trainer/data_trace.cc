// Prints the data of data sets and samplers. Answers each line of standard input with one line:
//   indices NUM_SAMPLES WORLD_SIZE RANK SHUFFLE SEED DROP_LAST EPOCH
//     prints the sampler's indices
//   batches TYPE PATH BLOCK_SIZE WORLD_SIZE RANK SHUFFLE SEED BATCH_SIZE FIRST COUNT PREFETCH
//     prints COUNT micro-batches of tokens or text from FIRST on, by sample, inputs then targets
//   chat PATH VAL_PATH TEMPLATE TOKENIZER BLOCK_SIZE PACKING DOCUMENTS
//     prints all samples of chat data, inputs then targets; of VAL_PATH unless it is "-". TEMPLATE
//     is a number.
#include <ATen/ATen.h>

#include <iostream>
#include <string>

#include "trainer/data/loader.h"

namespace {

using dslaunch::DistributedSampler;

void PrintIndices() {
  DistributedSampler::Options options;
  int64_t epoch = 0;
  std::cin >> options.num_samples >> options.world_size >> options.rank >> options.shuffle >>
      options.seed >> options.drop_last >> epoch;
  DistributedSampler sampler(options);
  sampler.SetEpoch(epoch);
  for (const int64_t index : sampler.Indices()) std::cout << index << ' ';
}

void PrintBatches() {
  std::string type;
  dslaunch::DataConfig data;
  dslaunch::BatchLoader::Options options;
  int64_t count = 0;
  std::cin >> type >> data.path >> data.block_size >> options.sampler.world_size >>
      options.sampler.rank >> options.sampler.shuffle >> options.sampler.seed >>
      options.batch_size >> options.first_batch >> count >> options.prefetch;
  data.type =
      type == "text" ? dslaunch::DataConfig::Type::kText : dslaunch::DataConfig::Type::kTokens;
  const dslaunch::DataSplits splits = OpenData(data, {.vocabulary = int64_t{1} << 20});
  options.sampler.num_samples = splits.train->size();
  const int64_t per_rank =
      dslaunch::SamplesPerRank(splits.train->size(), options.sampler.world_size, false);
  options.batches_per_epoch = (per_rank + options.batch_size - 1) / options.batch_size;
  options.first_sample = options.first_batch % options.batches_per_epoch * options.batch_size *
                         options.sampler.world_size;
  options.last_batch = options.first_batch + count;
  dslaunch::BatchLoader loader(*splits.train, options);
  for (; count > 0; --count) {
    const dslaunch::Batch batch = loader.Next();
    const at::Tensor both = at::stack({batch.inputs, batch.targets}, 1).contiguous();
    const int64_t* token = both.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < both.numel(); ++i) std::cout << token[i] << ' ';
  }
}

void PrintChat() {
  dslaunch::DataConfig data;
  data.type = dslaunch::DataConfig::Type::kChat;
  int chat_template = 0;
  std::cin >> data.path >> data.val_path >> chat_template >> data.tokenizer >> data.block_size >>
      data.packing >> data.documents;
  data.chat_template = static_cast<dslaunch::DataConfig::ChatTemplate>(chat_template);
  const bool test = data.val_path != "-";
  if (!test) data.val_path.clear();
  const dslaunch::DataSplits splits = OpenData(data, {.vocabulary = int64_t{1} << 20});
  const dslaunch::Dataset& dataset = test ? *splits.test : *splits.train;
  for (int64_t index = 0; index < dataset.size(); ++index) {
    const dslaunch::Batch batch = dataset.Fetch({&index, 1});
    for (const at::Tensor& tensor : {batch.inputs, batch.targets}) {
      const int64_t* token = tensor.const_data_ptr<int64_t>();
      for (int64_t i = 0; i < tensor.numel(); ++i) std::cout << token[i] << ' ';
    }
  }
}

}  // namespace

int main() {
  std::string what;
  while (std::cin >> what) {
    if (what == "chat") {
      PrintChat();
    } else {
      what == "indices" ? PrintIndices() : PrintBatches();
    }
    std::cout << std::endl;
  }
}
