// Tokenizes files for training: dslaunch data prepare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

struct PrepareOptions {
  std::vector<std::string> inputs;  // files of text, each a document, or of JSON lines
  std::string tokenizer;            // folder with tokenizer.json and tokenizer_config.json
  std::string output;               // the PREFIX in PREFIX.bin and PREFIX.idx
  std::string key = "text";         // key of the text in a line of JSON
  int threads = 0;                  // 0: one for each core
  bool force = false;               // whether to replace PREFIX.bin and PREFIX.idx
};

struct PrepareResult {
  int64_t documents = 0;
  int64_t empty_documents = 0;  // left out
  int64_t tokens = 0;
  size_t token_bytes = 0;
};

// Writes the tokens of all documents, in their order, each with the eos token at its end. The files
// do not depend on the number of threads. A thread works on about a MiB of text at a time, or on a
// line of JSON of up to 64 MiB; a text that is larger is tokenized in parts that end after a line.
// Throws TrainError kUsage if the output exists, kBadInput, naming file and line or byte, for input
// that cannot be used, and kIo.
PrepareResult PrepareData(const PrepareOptions& options);

}  // namespace dslaunch
