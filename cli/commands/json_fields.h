// The fields of all JSON that dslaunch writes for programs, in words for docs/reference.
// tests/docs/json_test.py compares them with what the commands write.
#pragma once

#include <vector>

namespace dslaunch {

struct JsonField {
  const char* path;     // "cause.node", "nodes[].name"
  const char* meaning;  // without a full stop; "object: ..." where its keys are data
};

struct JsonDocument {
  const char* name;   // of its heading: "--json", "started"
  const char* about;  // a sentence
  std::vector<JsonField> fields;
};

// What commands print with --json.
const std::vector<JsonDocument>& JsonOutputs();

// Lines of events.jsonl, by the event's name. All have "t" (seconds since 1970) and "event" too.
const std::vector<JsonDocument>& JsonEvents();

}  // namespace dslaunch
