#include "cli/transport/agent_scripts.h"

#include "base/text/substitute.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

constexpr char kDefaultFolder[] = R"("$HOME/.cache/dslaunch")";

// The script that starts an installed agent. It uses only shell built-ins before the exec, because
// it delays every start. Its checks are brief, because the installation made the full checks.
constexpr std::string_view kStart =
    R"sh(d=%FOLDER%; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh([ -O "$d" ] && [ ! -L "$d" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ] || exit 97; )sh"
    R"sh(exec "$a"%ARGUMENTS%)sh";

// The script for nodes of several machine types. uname costs a process, so nodes of a single type
// do not run this script.
constexpr std::string_view kStartByMachine =
    R"sh(m=$(uname -m); echo "%LINE%%NONCE% $m"; case $m in %CASES% *) exit 97;; esac)sh";

// The script that installs the agent. The agent's bytes arrive on stdin after the script has
// requested a form. Every parent folder must belong to the user or root, and no other user may be
// able to rename entries in it. The file gets its final name only when it is complete, on disk and
// known to run on this node.
//
// Nodes may share the folder (a home on NFS). A folder for the build is the lock, because mkdir is
// atomic on NFS. The file in the lock folder is the holder's copy; other nodes wait until the agent
// appears. Clocks differ between nodes, so a lock counts as abandoned when its content is unchanged
// in kAbandonedAfterLooks checks. Only one of the nodes that see this takes over the lock, because
// only one can rename the file that they all saw. A lock without a file is removed, and a holder
// that had just created it tries again. Leftovers of an interrupted copy are removed with the lock
// or after a day; agents that no job has started for 90 days are removed too. Nothing is removed if
// this copy itself looks a day old, because then the node's clock is ahead of the file server's.
constexpr std::string_view kInstall =
    R"sh(umask 077; l=; t=; a=; )sh"
    R"sh(good() { [ -n "$a" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ]; }; )sh"
    R"sh(say() { echo "DSLAUNCH-COPY %NONCE% $1"; }; )sh"
    R"sh(drop() { [ -z "$t" ] || rm -f "$t"; [ -z "$l" ] || rmdir "$l" 2> /dev/null; }; )sh"
    R"sh(fail() { drop; echo "$1" >&2; exit 98; }; )sh"
    R"sh(late() { drop; good && exit 0; echo "$1" >&2; exit 98; }; )sh"
    R"sh(trap "drop; exit 98" HUP INT PIPE TERM; )sh"
    R"sh(%NEEDS_HOME%)sh"
    R"sh(m=$(uname -m); [ "$m" = %MACHINE% ] || fail "%NO_AGENT%"; )sh"
    R"sh(d=%FOLDER%; )sh"
    R"sh(mkdir -p "$d" || fail "cannot create $d: is it writable, and the disk not full? --agent_dir chooses another folder"; )sh"
    R"sh([ -O "$d" ] && [ ! -L "$d" ] || fail "$d must be a folder of this account and no link; remove it"; )sh"
    R"sh(chmod 700 "$d" || fail "cannot set the mode of $d"; )sh"
    R"sh(p=$(cd "$d" && pwd -P) || fail "cannot enter $d"; u=$(id -u); )sh"
    R"sh(while :; do )sh"
    R"sh([ -n "$(find "$p" -prune "(" -user 0 -o -user "$u" ")" "(" ! -perm -020 ! -perm -002 -o -perm -1000 ")")" ] )sh"
    R"sh(|| fail "others may change $p, so no program is started from below it; fix: chmod go-w $p"; )sh"
    R"sh([ "$p" != / ] || break; p="${p%/*}"; p="${p:-/}"; done; )sh"
    R"sh(a="$d/agent-%BUILD_ID%"; k="$d/.copy-%BUILD_ID%"; q=; s=0; e=0; )sh"
    R"sh(hold() { t="$k/%NONCE%"; if { true > "$t"; } 2> /dev/null; then l="$k"; )sh"
    R"sh(else t=; e=$((e+1)); rmdir "$k" 2> /dev/null; return 1; fi; }; )sh"
    R"sh(take_over() { if [ ! -e "$k/$o" ]; then rmdir "$k" 2> /dev/null; return 1; fi; )sh"
    R"sh(mv "$k/$o" "$k/%NONCE%.old" 2> /dev/null && hold || return 1; )sh"
    R"sh(for f in "$k"/*; do [ "$f" = "$t" ] || rm -f "$f"; done; }; )sh"
    R"sh(while ! { mkdir "$k" 2> /dev/null && hold; }; do )sh"
    R"sh(if good; then say have; exit 0; fi; )sh"
    R"sh([ -d "$k" ] || e=$((e+1)); [ "$e" -lt 5 ] || fail "cannot create $k: is the disk full?"; )sh"
    R"sh(set -- "$k"/*; o=${1##*/}; r=$(ls -l "$k" 2> /dev/null); )sh"
    R"sh(if [ "$r" = "$q" ]; then s=$((s+1)); else s=0; q=$r; fi; )sh"
    R"sh(if [ "$s" -ge %STALL% ]; then s=0; if take_over; then break; fi; fi; )sh"
    R"sh(say wait; sleep 1; done; )sh"
    R"sh(if good; then drop; say have; exit 0; fi; )sh"
    R"sh(if [ -z "$(find "$t" -mtime +0)" ]; then )sh"
    R"sh(find "$d/." ! -name . -prune "(" -name ".copy-*" -o -name ".agent-*" ")" -mtime +0 -exec rm -rf {} + ; )sh"
    R"sh(find "$d/." ! -name . -prune -type f -name "agent-*" -mtime +89 -exec rm -f {} + ; fi; )sh"
    R"sh(%TAKE% )sh"
    R"sh(|| late "cannot write to $d: is the disk full?"; )sh"
    R"sh(n=$(wc -c < "$t"); [ "$n" -eq %SIZE% ] || late "only $n of %SIZE% bytes arrived in $d"; )sh"
    R"sh(s=$(sha256sum < "$t"); [ "${s%% *}" = %SHA256% ] || late "the copy in $d differs from what was sent"; )sh"
    R"sh(chmod 700 "$t" || late "cannot make $t executable"; )sh"
    R"sh("$t" --version > /dev/null; s=$?; )sh"
    R"sh([ "$s" -ne 126 ] || late "programs in $d may not be started (mount option noexec?); choose another folder with --agent_dir"; )sh"
    R"sh([ "$s" -eq 0 ] || late "the agent cannot run there: see the line before"; )sh"
    R"sh(sync "$t" 2> /dev/null || sync; )sh"
    R"sh(ln "$t" "$a" 2> /dev/null || [ -e "$a" ] || mv -n "$t" "$a"; drop; )sh"
    R"sh(good || fail "$a is not the agent; remove it")sh";

// Shell code that writes the agent's bytes to "$t". kTakeAsked first requests a form that the node
// can read; kTakeRaw reads uncompressed bytes without a request.
constexpr char kTakeAsked[] =
    R"sh(if command -v gzip > /dev/null 2>&1; then say gzip; gzip -dc > "$t"; else say raw; cat > "$t"; fi)sh";
constexpr char kTakeRaw[] = R"sh(cat > "$t")sh";

// Number of checks, one per second, after which another node's unchanged copy counts as abandoned.
constexpr int kAbandonedAfterLooks = 20;

// Returns the agent's folder as a word for the scripts. A folder other than the default is encoded
// in octal, so that the shell interprets none of its characters.
std::string FolderWord(const AgentBinary& agent) {
  if (agent.node_folder.empty()) return kDefaultFolder;
  std::string word = R"sh("$(printf "%b" ")sh";
  for (const unsigned char c : agent.node_folder) {
    word += "\\0";
    for (const int shift : {6, 3, 0}) word += static_cast<char>('0' + ((c >> shift) & 7));
  }
  return word + R"sh(")/dslaunch-$(id -u)")sh";
}

// The script that all nodes of a launcher run. No launcher connects the stdin of all nodes, so a
// node without the agent fetches it from dslaunch's own port. A failure is reported in one line on
// stdout.
constexpr std::string_view kCallBack =
    R"sh(d=%FOLDER%; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh(ready() { [ -O "$d" ] && [ ! -L "$d" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ]; }; )sh"
    R"sh(ready || w=$({ for e in %SOURCES%; do )sh"
    R"sh(bash -c "exec 3<>/dev/tcp/$e && echo %TICKET% >&3 && cat <&3" 2> /dev/null && break; done; } )sh"
    R"sh(| ( %INSTALL% ) 2>&1) || { set -f; echo DSLAUNCH-FAILED %NONCE% %PLACE% $w; exit 98; }; )sh"
    R"sh(exec "$a" call-back --nonce %NONCE% %PLACE% %PIN% %ENDPOINTS%%ARGUMENTS%)sh";

// Returns `text` without any characters except lower-case letters, digits, '_' and those in `also`.
// Texts from files and variables need this, because a shell on the node parses the script.
std::string Plain(std::string_view text, std::string_view also = "") {
  std::string plain;
  for (const char c : text) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_' ||
        also.find(c) != std::string_view::npos) {
      plain += c;
    }
  }
  return plain;
}

// Returns the agent's arguments as shell words, each preceded by a blank.
std::string ArgumentWords(const AgentRole& role, std::string_view nonce) {
  std::string words;
  for (const std::string& argument : AgentArguments(role, nonce))
    words += " " + Plain(argument, "-");
  return words;
}

}  // namespace

std::string NodeFolderOf(const AgentBinary& agent) {
  return agent.node_folder.empty() ? "~/.cache/dslaunch" : agent.node_folder + "/dslaunch-UID";
}

std::string OtherBuildText(const AgentBinary& agent, const std::string& build_id) {
  return "the agent there is of build " + build_id + ", not " + agent.build_id + "; remove " +
         NodeFolderOf(agent) + " on the node and try again";
}

std::string StartScript(const AgentBinary& agent, const AgentRole& role, std::string_view nonce) {
  const auto start = [&](const AgentBinary& one) {
    return Substitute(kStart, {{"%FOLDER%", FolderWord(agent)},
                               {"%BUILD_ID%", Plain(one.build_id)},
                               {"%ARGUMENTS%", ArgumentWords(role, nonce)}});
  };
  if (agent.others.empty()) return start(agent);
  std::string cases = Plain(agent.machine) + ") " + start(agent) + ";;";
  for (const AgentBinary& other : agent.others)
    cases += " " + Plain(other.machine) + ") " + start(other) + ";;";
  return Substitute(
      kStartByMachine,
      {{"%LINE%", std::string(kMachineMagic)}, {"%NONCE%", Plain(nonce)}, {"%CASES%", cases}});
}

std::string InstallScript(const AgentBinary& agent, std::string_view sha256, std::string_view nonce,
                          CopyForm form) {
  const char* needs_home =
      agent.node_folder.empty() ? R"sh([ -n "$HOME" ] || fail "HOME is not set there"; )sh" : "";
  return Substitute(kInstall, {{"%NEEDS_HOME%", needs_home},
                               {"%TAKE%", form == CopyForm::kRaw ? kTakeRaw : kTakeAsked},
                               {"%FOLDER%", FolderWord(agent)},
                               {"%BUILD_ID%", Plain(agent.build_id)},
                               {"%MACHINE%", Plain(agent.machine)},
                               {"%NO_AGENT%", NoAgentText(agent, "$m")},
                               {"%STALL%", std::to_string(kAbandonedAfterLooks)},
                               {"%SIZE%", std::to_string(agent.size_bytes)},
                               {"%SHA256%", Plain(sha256)},
                               {"%NONCE%", Plain(nonce)}});
}

std::string CallBackScript(const std::vector<OfferedAgent>& agents, const AgentRole& role,
                           const CallBackStart& start) {
  std::string sources;
  std::string endpoints;
  for (const std::string& endpoint : start.endpoints) {
    std::string plain = Plain(endpoint, ".:");
    endpoints += (endpoints.empty() ? "" : ",") + plain;
    if (const size_t colon = plain.rfind(':'); colon != std::string::npos) plain[colon] = '/';
    sources += (sources.empty() ? "" : " ") + plain;
  }
  const auto script = [&](const OfferedAgent& offered) {
    const AgentBinary& agent = offered.agent;
    return Substitute(
        kCallBack,
        {{"%INSTALL%", InstallScript(agent, offered.sha256, start.nonce, CopyForm::kRaw)},
         {"%FOLDER%", FolderWord(agent)},
         {"%BUILD_ID%", Plain(agent.build_id)},
         {"%SOURCES%", sources},
         {"%TICKET%", Plain(offered.ticket)},
         {"%NONCE%", Plain(start.nonce)},
         {"%PIN%", Plain(start.pin)},
         {"%ENDPOINTS%", endpoints},
         {"%ARGUMENTS%", ArgumentWords(role, start.nonce)},
         {"%PLACE%", start.place}});
  };
  // The script of the first agent refuses machine types for which no agent is installed.
  std::string by_machine = script(agents.front());
  if (agents.size() == 1) return by_machine;
  by_machine = "*) " + by_machine + ";;";
  for (size_t i = 1; i < agents.size(); ++i)
    by_machine = Plain(agents[i].agent.machine) + ") " + script(agents[i]) + ";; " + by_machine;
  return "case $(uname -m) in " + by_machine + " esac";
}

std::string ForLoginShell(const std::string& script) { return "/bin/sh -c '" + script + "'"; }

}  // namespace dslaunch
