#include "agent/host/failure_evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "proto/contract/peer_failure.h"

namespace dslaunch::failure_evidence_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

FailureEvidence ClassifyLines(const std::string& lines, int signal = 0) {
  return ClassifyFailure(signal, lines, "");
}

std::string Raised(const std::string& exception) {
  return "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    f()\n" +
         exception + "\n";
}

TEST(FailureEvidenceTest, RecognizesLostPeersInErrorsOfLibraries) {
  for (const char* line : {
           "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
           "by peer [10.0.0.2]:14004",
           "RuntimeError: [gloo/transport/tcp/pair.cc:589] Read error [10.0.0.2]:25266: Connection "
           "reset by peer",
           "RuntimeError: [gloo/transport/tcp/pair.cc:1] writev [10.0.0.2]:1: Broken pipe",
           "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms "
           "for "
           "recv operation to complete",
           "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote "
           "process exited or there was a network error, NCCL version 2.18.1",
           "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error, "
           "NCCL version 2.18.1",
           "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//1",
           "torch.distributed.DistNetworkError: The client socket has failed to connect",
           "RuntimeError: [c10d] recvValue failed on SocketImpl(fd=3)",
       }) {
    const FailureEvidence raised = ClassifyLines(Raised(line));
    EXPECT_TRUE(raised.victim) << line;
    EXPECT_EQ(raised.line, line);
    EXPECT_TRUE(ClassifyLines("step 3\n" + std::string(line) + "\n").victim) << line;
  }
}

TEST(FailureEvidenceTest, DistinguishesLateLostAndUnreachablePeers) {
  const std::pair<pb::Cause::PeerFault, std::string> kErrors[] = {
      {pb::Cause::LATE,
       "torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 1/2 "
       "clients joined."},
      {pb::Cause::LATE, "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /k"},
      {pb::Cause::LATE,
       "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed "
       "out waiting 3000ms for recv operation to complete"},
      {pb::Cause::LATE,
       "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms"},
      {pb::Cause::LATE,
       "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 600000 "
       "milliseconds before timing out."},
      {pb::Cause::LATE, "dslaunch-train: rank 0: " + std::string(kPeerLateText)},
      {pb::Cause::UNREACHABLE,
       "torch.distributed.DistNetworkError: The client socket has timed out after 3000ms while "
       "trying to connect to (nohost.invalid, 29601)."},
      {pb::Cause::UNREACHABLE,
       "torch.distributed.DistNetworkError: The client socket has failed to connect to any network "
       "address of (10.255.255.1, 29601). The client socket has failed to connect to 10.255.255.1 "
       "(errno: 101 - Network is unreachable)."},
      {pb::Cause::UNREACHABLE,
       "torch.distributed.DistNetworkError: Ping failed, invalid value returned from server. "
       "Expected: 27507, Got: 1347703880"},
      {pb::Cause::UNREACHABLE,
       "RuntimeError: [gloo/transport/tcp/pair.cc:1] connect [127.0.1.1]:3: Connection refused"},
      {pb::Cause::GONE,
       "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:2"},
      {pb::Cause::GONE, "dslaunch-train: rank 0: " + std::string(kPeerLostText)},
  };
  for (const auto& [fault, line] : kErrors) {
    const FailureEvidence evidence = ClassifyLines(Raised(line));
    EXPECT_TRUE(evidence.victim) << line;
    EXPECT_EQ(evidence.peer_fault, fault) << line;
  }
}

TEST(FailureEvidenceTest, RankWithoutErrorIsNotAVictim) {
  for (const int signal : {0, SIGABRT, SIGTERM, SIGKILL})
    EXPECT_FALSE(ClassifyLines("step 3\n", signal).victim) << signal;
}

TEST(FailureEvidenceTest, QuotesOwnErrorAndDoesNotReportAVictim) {
  for (const char* line :
       {"ValueError: bad shape", "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "TimeoutError: Timed out waiting for the lock of cache.db",
        "requests.exceptions.ConnectionError: Connection reset by peer",
        "OperationalError: timed out while trying to connect to db:5432",
        "torch.distributed.DistBackendError: NCCL error: invalid usage"}) {
    const FailureEvidence evidence = ClassifyLines(Raised(line));
    EXPECT_FALSE(evidence.victim) << line;
    EXPECT_EQ(evidence.line, line);
  }
  EXPECT_FALSE(ClassifyLines("going down\n").victim);
  EXPECT_EQ(ClassifyLines("going down\n").line, "");
}

TEST(FailureEvidenceTest, PrefersExceptionToLaterLibraryOutput) {
  const FailureEvidence evidence = ClassifyLines(
      Raised("ValueError: mine") +
      "\n[W TCPStore.cpp:125] [c10d] recvValue failed: Connection was likely closed\n");
  EXPECT_FALSE(evidence.victim);
  EXPECT_EQ(evidence.line, "ValueError: mine");
}

TEST(FailureEvidenceTest, UsesFirstExceptionOfAChain) {
  const std::string peer = "RuntimeError: [gloo/pair.cc:5] Connection closed by peer";
  const std::string during =
      "\nDuring handling of the above exception, another exception occurred:\n\n";
  const FailureEvidence mine = ClassifyLines(Raised("KeyError: 'x'") + during + Raised(peer));
  EXPECT_FALSE(mine.victim);
  EXPECT_EQ(mine.line, "KeyError: 'x'");
  const FailureEvidence victim = ClassifyLines(Raised(peer) + during + Raised("KeyError: 'x'"));
  EXPECT_TRUE(victim.victim);
  EXPECT_EQ(victim.line, peer);
  // The text has two separate exceptions. The last exception ended the program.
  EXPECT_FALSE(ClassifyLines(Raised(peer) + "trying again\n" + Raised("KeyError: 'x'")).victim);
}

TEST(FailureEvidenceTest, UsesOriginalTracebackOfDataLoaderWorker) {
  const FailureEvidence evidence =
      ClassifyFailure(0,
                      "Traceback (most recent call last):\n  File \"t.py\"\n"
                      "OSError: Caught OSError in DataLoader worker process 0.\n"
                      "Original Traceback (most recent call last):\n  File \"worker.py\"\n"
                      "OSError: shard 3 is truncated\n\n",
                      "");
  EXPECT_FALSE(evidence.victim);
  EXPECT_EQ(evidence.line, "OSError: shard 3 is truncated");
}

TEST(FailureEvidenceTest, UsesTextOfUncaughtCppException) {
  const std::string head =
      "step 3\nterminate called after throwing an instance of 'std::runtime_error'\n";
  EXPECT_EQ(ClassifyLines(head + "  what():  bad batch 17\nmore of it\n\nother\n", SIGABRT).line,
            "bad batch 17");
  EXPECT_FALSE(ClassifyLines(head + "  what():  bad batch 17\n", SIGABRT).victim);
  const FailureEvidence lost = ClassifyLines(
      head + "  what():  [gloo/transport/tcp/pair.cc:534] Connection closed by peer\n", SIGABRT);
  EXPECT_TRUE(lost.victim);
  EXPECT_THAT(lost.line, StartsWith("[gloo/"));
  EXPECT_EQ(ClassifyLines("terminate called after throwing an instance of 'int'\n", SIGABRT).line,
            "terminate called after throwing an instance of 'int'");
  EXPECT_EQ(
      ClassifyLines("libc++abi: terminating due to uncaught exception of type E: bad\n", SIGABRT)
          .line,
      "libc++abi: terminating due to uncaught exception of type E: bad");
  EXPECT_EQ(ErrorBeforeStop(head + "  what():  bad batch 17\n", ""), "bad batch 17");
}

TEST(FailureEvidenceTest, IgnoresInterruptsAndPeerErrorsDuringStop) {
  const std::string head = "Traceback (most recent call last):\n  File \"t.py\"\n";
  EXPECT_EQ(ErrorBeforeStop(head + "ValueError: bad\n", ""), "ValueError: bad");
  EXPECT_EQ(ErrorBeforeStop("", "KeyError: 'lr'"), "KeyError: 'lr'");
  EXPECT_EQ(ErrorBeforeStop(head + "KeyboardInterrupt\n", ""), std::nullopt);
  EXPECT_EQ(ErrorBeforeStop(head + "RuntimeError: [gloo] Connection closed by peer\n", ""),
            std::nullopt);
  EXPECT_EQ(ErrorBeforeStop("Terminated\n", ""), std::nullopt);
}

TEST(FailureEvidenceTest, ReadsTorchRankTagsAndMultilineErrors) {
  const FailureEvidence evidence = ClassifyLines(
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 1\n"
      "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1\n"
      "[rank1]: ncclRemoteError: A call failed possibly due to a network error\n");
  EXPECT_TRUE(evidence.victim);
  EXPECT_THAT(evidence.line, StartsWith("ncclRemoteError"));
}

TEST(FailureEvidenceTest, RecognizesTrainerTextsAboutOtherRanks) {
  for (const std::string_view text : {kPeerLostText, kPeerLateText}) {
    const std::string line = "dslaunch-train: rank 3: " + std::string(text) + " (gone)";
    EXPECT_TRUE(ClassifyLines(line + "\n").victim) << line;
    EXPECT_EQ(ClassifyLines(line + "\n").line, line);
    EXPECT_TRUE(ClassifyLines("my_program: rank 3: " + std::string(text) + " (gone)\n").victim);
  }
  // Both kinds of errors have exit code 69, like a lost peer, but do not mean a lost peer.
  for (const char* line :
       {"dslaunch-train: rank 3: out of memory: CUDA out of memory. Tried to allocate 2.00 GiB",
        "dslaunch-train: rank 3: this machine has no NVIDIA driver (libcuda.so.1); use device cpu",
        "dslaunch-train: rank 3: cannot read x.idx"}) {
    EXPECT_FALSE(ClassifyLines(std::string(line) + "\n").victim) << line;
    EXPECT_EQ(ClassifyLines(std::string(line) + "\n").line, line);
  }
}

TEST(FailureEvidenceTest, OnlyAbortSignalCanMakeAVictim) {
  const std::string watchdog =
      "terminate called after throwing an instance of 'c10::DistBackendError'\n"
      "  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)\n";
  EXPECT_TRUE(ClassifyLines(watchdog, SIGABRT).victim);
  for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGTERM, SIGFPE})
    EXPECT_FALSE(ClassifyLines(watchdog, signal).victim) << signal;
  EXPECT_FALSE(ClassifyLines("free(): invalid pointer\n", SIGABRT).victim);
}

TEST(FailureEvidenceTest, PrefersTheErrorFile) {
  const auto message = ReadErrorFile(
      R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "...", "timestamp": "1"}}})");
  ASSERT_TRUE(message);
  EXPECT_EQ(*message, "ValueError: bad");
  const FailureEvidence own =
      ClassifyFailure(0, "RuntimeError: gloo Connection closed by peer\n", *message);
  EXPECT_FALSE(own.victim);
  EXPECT_EQ(own.line, "ValueError: bad");
  EXPECT_TRUE(
      ClassifyFailure(0, "ValueError: x\n", "RuntimeError: gloo: Connection closed").victim);
  EXPECT_EQ(ReadErrorFile(R"({"message": "plain"})"), "plain");
}

TEST(FailureEvidenceTest, RejectsInvalidErrorFiles) {
  for (const char* text : {"", "{", "[]", "7", "{\"message\": 7}", "{\"message\": {}}",
                           "{\"message\": {\"message\": []}}", "{\"message\": \"\xff\"}"}) {
    EXPECT_EQ(ReadErrorFile(text), std::nullopt) << text;
  }
  const std::string large = "{\"message\": \"" + std::string(kMaxErrorFileBytes, 'x') + "\"}";
  EXPECT_EQ(ReadErrorFile(large), std::nullopt);
}

TEST(FailureEvidenceTest, EvidenceIsOneShortPrintableLine) {
  const FailureEvidence evidence =
      ClassifyLines(Raised("ValueError: \x1b[31mred\x1b[0m \xff " + std::string(5000, 'x')));
  EXPECT_THAT(evidence.line, StartsWith("ValueError: red \xef\xbf\xbd xxx"));
  EXPECT_LT(evidence.line.size(), 500u);
}

}  // namespace
}  // namespace dslaunch::failure_evidence_test
