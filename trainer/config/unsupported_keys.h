// Refuses keys of DeepSpeed's configuration that dslaunch does not support. Configurations often
// contain DeepSpeed's defaults, so values that turn such keys off are accepted; other values are
// refused by name.
#pragma once

namespace dslaunch {

class JsonObject;

// Refuses unsupported keys in `engine`. Throws TrainError kBadInput with the key, the reason and
// the remedy.
void RefuseUnsupportedKeys(JsonObject& engine);

}  // namespace dslaunch
