// Tokenizes files for training. Used by `dslaunch data prepare`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

struct PrepareOptions {
  // Text files, of which each is a document, or files of JSON lines.
  std::vector<std::string> inputs;
  std::string tokenizer;     // folder with tokenizer.json and tokenizer_config.json
  std::string output;        // prefix of the output files: <output>.bin and <output>.idx
  std::string key = "text";  // key of the text in each line of JSON
  int threads = 0;           // number of threads; 0 for one thread per core
  bool force = false;        // true to replace existing output files
};

struct PrepareResult {
  int64_t documents = 0;
  int64_t empty_documents = 0;  // number of empty documents, which are omitted
  int64_t tokens = 0;
  size_t token_bytes = 0;
};

// Writes the tokens of all documents, in their order, each followed by the eos token. The files do
// not depend on the number of threads. A thread works on about a MiB of text at a time, or on a
// line of JSON of up to 64 MiB. Larger texts are tokenized in parts that end after a line. Throws
// TrainError: kUsage if the output exists, kBadInput, naming file and line or byte, if an input is
// not valid, and kIo if a file cannot be read or written.
PrepareResult PrepareData(const PrepareOptions& options);

}  // namespace dslaunch
