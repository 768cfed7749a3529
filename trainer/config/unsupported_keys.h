// Keys of DeepSpeed's configuration for what is not here: accepted where they ask for nothing,
// because configurations often spell DeepSpeed's defaults out, and refused by name otherwise.
#pragma once

namespace dslaunch {

class JsonObject;

// Throws TrainError kBadInput, naming the key, the reason and the way out.
void RefuseUnsupportedKeys(JsonObject& engine);

}  // namespace dslaunch
