#include "agent/host/restart_verdict.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <sstream>

#include "agent/host/failure_evidence.h"

namespace dslaunch::restart_verdict_test {
namespace {

struct Case {
  std::string part;
  pb::Cause::Restart truth;
  std::string text;
};

std::string Unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'n' || text[i + 1] == 't');
    plain += is_escape ? (text[++i] == 'n' ? '\n' : '\t') : text[i];
  }
  return plain;
}

std::vector<Case> ReadCorpus() {
  std::vector<Case> cases;
  std::ifstream file(DSLAUNCH_FAILURE_CORPUS);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream columns(line);
    std::string part, verdict, source, text;
    std::getline(columns, part, '\t');
    std::getline(columns, verdict, '\t');
    std::getline(columns, source, '\t');
    std::getline(columns, text);
    cases.push_back({part,
                     verdict == "can"      ? pb::Cause::RESTART_CAN_HELP
                     : verdict == "cannot" ? pb::Cause::RESTART_CANNOT_HELP
                                           : pb::Cause::RESTART_UNKNOWN,
                     Unescaped(text)});
  }
  return cases;
}

// Returns an exception's text as Python prints an uncaught exception. Other texts are returned
// unchanged.
std::string AsPrinted(const std::string& text) {
  const std::string name = text.substr(0, text.find_first_of(": \n"));
  const bool is_exception = name.ends_with("Error") || name.ends_with("Exception") ||
                            name.ends_with("Timeout") || name.ends_with("Interrupt");
  return is_exception ? "Traceback (most recent call last):\n"
                        "  File \"train.py\", line 7, in <module>\n    main()\n" +
                            text + "\n"
                      : text + "\n";
}

RestartVerdict Judge(const std::string& output, int signal = 0) {
  const FailureEvidence said = ClassifyFailure(signal, output, "");
  return JudgeRestart(signal, output, said.line, said.victim);
}

TEST(RestartVerdictTest, CannotHelpIsPreciseOnCorpus) {
  for (const std::string part : {"fit", "held"}) {
    int cases = 0, cannot = 0, right = 0, found = 0, can_wrong = 0;
    for (const Case& one : ReadCorpus()) {
      if (one.part != part) continue;
      ++cases;
      const RestartVerdict verdict = Judge(AsPrinted(one.text));
      const bool is_cannot = verdict.restart == pb::Cause::RESTART_CANNOT_HELP;
      cannot += is_cannot;
      right += is_cannot && one.truth == pb::Cause::RESTART_CANNOT_HELP;
      found += one.truth == pb::Cause::RESTART_CANNOT_HELP;
      const bool can_is_wrong = verdict.restart == pb::Cause::RESTART_CAN_HELP &&
                                one.truth == pb::Cause::RESTART_CANNOT_HELP;
      can_wrong += can_is_wrong;
      if (is_cannot && one.truth != pb::Cause::RESTART_CANNOT_HELP)
        ADD_FAILURE() << part << ": " << one.text;
    }
    std::printf("%s: %d texts, \"cannot help\" %d of %d right, %d of %d found\n", part.c_str(),
                cases, right, cannot, right, found);
    EXPECT_GE(cases, 75);
    EXPECT_GE(right, 0.98 * cannot) << part;
    EXPECT_GE(right, 0.8 * found) << "most are found";
    EXPECT_EQ(can_wrong, 0) << part;
  }
}

TEST(RestartVerdictTest, MatchesTruthOnTuningSet) {
  for (const Case& one : ReadCorpus()) {
    if (one.part == "fit") EXPECT_EQ(Judge(AsPrinted(one.text)).restart, one.truth) << one.text;
  }
}

TEST(RestartVerdictTest, NamesReasonAndLine) {
  const RestartVerdict verdict = Judge(AsPrinted("ModuleNotFoundError: No module named 'apex'"));
  EXPECT_EQ(verdict.restart, pb::Cause::RESTART_CANNOT_HELP);
  EXPECT_EQ(verdict.reason, "the installed software does not fit");
  EXPECT_EQ(verdict.line, "ModuleNotFoundError: No module named 'apex'");
}

TEST(RestartVerdictTest, IgnoresPermanentTextsAfterSignal) {
  const std::string output = "warning: No module named 'apex', using the slow path\n";
  EXPECT_EQ(Judge(output, SIGKILL).restart, pb::Cause::RESTART_UNKNOWN);
  EXPECT_EQ(Judge("NVRM: Xid 79, GPU has fallen off the bus.\n", SIGBUS).restart,
            pb::Cause::RESTART_CAN_HELP);
}

TEST(RestartVerdictTest, VictimsCanBeStartedAgain) {
  EXPECT_EQ(JudgeRestart(0, "", "peer closed", /*victim=*/true).restart,
            pb::Cause::RESTART_CAN_HELP);
}

TEST(RestartVerdictTest, ReturnsUnknownWithoutError) {
  EXPECT_EQ(Judge("").restart, pb::Cause::RESTART_UNKNOWN);
  EXPECT_EQ(Judge("step 3: loss 0.5\n").restart, pb::Cause::RESTART_UNKNOWN);
}

}  // namespace
}  // namespace dslaunch::restart_verdict_test
