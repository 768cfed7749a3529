#include "trainer/engine/read_config.h"

#include <fstream>
#include <sstream>

#include "trainer/base/log.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

EngineConfig Parse(const std::string& config, const InitializeOptions& options, int ranks,
                   const ProgramLayout& program) {
  const size_t start = config.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && config[start] == '{') {
    return ParseEngineConfig(config, "the configuration", ranks, options.optimizer, program);
  }
  std::ifstream file(config);
  std::ostringstream text;
  if (!(text << file.rdbuf())) {
    throw TrainError(ExitCode::kBadInput,
                     "cannot read the configuration " + config +
                         "; give the path of a DeepSpeed configuration, or JSON text");
  }
  return ParseEngineConfig(text.str(), config, ranks, options.optimizer, program);
}

}  // namespace

EngineConfig ReadConfig(const std::string& config, const InitializeOptions& options,
                        const ProcessGroup& group, const ProgramLayout& program) {
  EngineConfig engine = Parse(config, options, group.world_size(), program);
  if (engine.parallel.staleness) {
    RefuseInput(
        "parallel.staleness is for recipes (dslaunch train), whose loop knows when ranks meet; "
        "leave it out");
  }
  if (engine.scheduler.fits_run) {
    RefuseInput(
        "scheduler.params.total_num_steps is \"auto\", but only `dslaunch train` knows the length "
        "of the run; write the number of steps");
  }
  if (group.rank() == 0 && engine.log_level <= EngineLogLevel::kInfo) {
    const double lr = engine.optimizer ? engine.optimizer->lr : 0;
    for (const std::string& notice :
         {engine.auto_notice, WarmupRemark(engine.scheduler, lr, std::nullopt)}) {
      if (!notice.empty()) PrintLine(notice);
    }
  }
  if (!options.broadcast_buffers) engine.broadcast_buffers = false;
  return engine;
}

}  // namespace dslaunch
