#include "trainer/engine/read_config.h"

#include <fstream>
#include <sstream>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

EngineConfig Parse(const std::string& config, const InitializeOptions& options, int ranks,
                   int64_t stages) {
  const size_t start = config.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && config[start] == '{') {
    return ParseEngineConfig(config, "the configuration", ranks, options.optimizer, stages);
  }
  std::ifstream file(config);
  std::ostringstream text;
  if (!(text << file.rdbuf())) {
    throw TrainError(ExitCode::kBadInput,
                     "cannot read the configuration " + config +
                         "; give the path of a DeepSpeed configuration, or JSON text");
  }
  return ParseEngineConfig(text.str(), config, ranks, options.optimizer, stages);
}

}  // namespace

EngineConfig ReadConfig(const std::string& config, const InitializeOptions& options, int ranks,
                        int64_t stages) {
  EngineConfig engine = Parse(config, options, ranks, stages);
  if (engine.parallel.staleness) {
    RefuseInput(
        "parallel.staleness is for recipes (dslaunch train), whose loop knows when ranks meet; "
        "leave it out");
  }
  if (!options.broadcast_buffers) engine.broadcast_buffers = false;
  return engine;
}

}  // namespace dslaunch
