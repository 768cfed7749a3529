// Receives the events of an EventStream in tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/logs/event_stream.h"

namespace dslaunch {

// Stores the events that it receives. The test calls EventStream::OnWritten() to accept an event.
class FakeSink : public EventSink {
 public:
  void Write(pb::NodeEvent event) override { events.push_back(std::move(event)); }
  void Finish() override { finished = true; }

  std::vector<pb::NodeEvent> events;
  bool finished = false;
};

inline pb::NodeEvent Notice(const std::string& text) {
  pb::NodeEvent event;
  event.mutable_notice()->set_message(text);
  return event;
}

}  // namespace dslaunch
