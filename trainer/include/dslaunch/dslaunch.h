// All public headers of dslaunch, for programs and plugins.
#pragma once

#include "dslaunch/autocast.h"
#include "dslaunch/dataset.h"
#include "dslaunch/engine.h"
#include "dslaunch/error.h"
#include "dslaunch/loss_scale.h"
#include "dslaunch/metric.h"
#include "dslaunch/mnist.h"
#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/pipeline.h"
#include "dslaunch/plugin.h"
#include "dslaunch/process_group.h"
#include "dslaunch/program.h"
#include "dslaunch/recompute.h"
#include "dslaunch/spawn.h"
#include "dslaunch/version.h"
