// Tokenizes files for training, for `dslaunch data prepare`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

struct PrepareOptions {
  std::vector<std::string> inputs;  // text files, each a document, or files of JSON lines
  std::string tokenizer;            // folder that contains tokenizer.json and tokenizer_config.json
  std::string output;               // PREFIX of the files PREFIX.bin and PREFIX.idx
  std::string key = "text";         // key of the text in each line of JSON
  int threads = 0;                  // number of threads; 0: one for each core
  bool force = false;               // true to replace existing files PREFIX.bin and PREFIX.idx
};

struct PrepareResult {
  int64_t documents = 0;
  int64_t empty_documents = 0;  // number of empty documents, which are left out
  int64_t tokens = 0;
  size_t token_bytes = 0;
};

// Writes the tokens of all documents, in their order, each followed by the eos token. The files do
// not depend on the number of threads. A thread works on about a MiB of text at a time, or on a
// line of JSON of up to 64 MiB. Larger texts are tokenized in parts that end after a line. Throws
// TrainError kUsage if the output exists, kBadInput, naming file and line or byte, if an input
// cannot be used, and kIo if a file cannot be read or written.
PrepareResult PrepareData(const PrepareOptions& options);

}  // namespace dslaunch
