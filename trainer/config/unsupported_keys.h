// Keys of DeepSpeed's configuration that dslaunch does not support. Values that turn them off are
// accepted, because configurations often contain DeepSpeed's defaults; others are refused by name.
#pragma once

namespace dslaunch {

class JsonObject;

// Throws TrainError kBadInput with the key, the reason and the remedy.
void RefuseUnsupportedKeys(JsonObject& engine);

}  // namespace dslaunch
