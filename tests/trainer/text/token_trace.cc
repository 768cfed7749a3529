// Encodes and decodes the texts on standard input, or measures the encoding of a file.
//
// dslaunch-token-trace FOLDER: reads texts, each as a uint32 (bytes) and UTF-8. Writes for each
// the tokens, as a uint32 (count) and int32s, and their text, as a uint32 (bytes) and UTF-8.
// dslaunch-token-trace FOLDER FILE: encodes the lines of FILE, each with its line end. Prints the
// CPU seconds and the number of tokens.
// dslaunch-token-trace FOLDER FILE ids: writes the tokens of these lines, as int32s, instead.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/text/tokenizer.h"

namespace dslaunch {
namespace {

template <class T>
void Write(const std::vector<T>& values) {
  const auto size = static_cast<uint32_t>(values.size());
  std::cout.write(reinterpret_cast<const char*>(&size), sizeof size);
  std::cout.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void Trace(const Tokenizer& tokenizer) {
  TokenEncoder encoder(tokenizer);
  uint32_t size = 0;
  while (std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) {
    std::string text(size, '\0');
    std::cin.read(text.data(), size);
    std::vector<int32_t> ids;
    encoder.EncodeDocument(text, ids);
    Write(ids);
    const std::string again = tokenizer.Decode(ids);
    Write(std::vector<char>(again.begin(), again.end()));
    std::cout.flush();
  }
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void EncodeFile(const Tokenizer& tokenizer, const std::string& path, bool write) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string text = content.str();
  TokenEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  size_t tokens = 0;
  const double start = CpuSeconds();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    ids.clear();
    encoder.EncodeDocument(std::string_view(text).substr(at, end - at), ids);
    tokens += ids.size();
    if (write) {
      std::cout.write(reinterpret_cast<const char*>(ids.data()),
                      static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
    }
    at = end;
  }
  if (!write) std::printf("%.6f %zu\n", CpuSeconds() - start, tokens);
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  try {
    const dslaunch::Tokenizer tokenizer = dslaunch::Tokenizer::Read(argc > 1 ? argv[1] : ".");
    if (argc > 2) {
      dslaunch::EncodeFile(tokenizer, argv[2], argc > 3);
    } else {
      dslaunch::Trace(tokenizer);
    }
    return 0;
  } catch (const dslaunch::TrainError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
