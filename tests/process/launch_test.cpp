// `troupe run` with real processes: exit codes, output, and that nothing is ever left.
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"

using Catch::Contains;
using troupe::testing::content;
using troupe::testing::Folder;
using troupe::testing::kTroupeCommand;
using troupe::testing::Launcher;
using troupe::testing::Process;
using troupe::testing::program;

namespace {

// A process is gone once the launcher has waited for it.
constexpr const char* kGone = "while kill -0 $pid 2>/dev/null; do :; done; ";

Launcher shell(const std::string& script, std::vector<std::string> flags = {"-n", "3"}) {
  flags.insert(flags.end(), {"/bin/sh", "-c", script});
  return Launcher(flags);
}

}  // namespace

TEST_CASE("a job whose workers all end well ends with 0 and says nothing", "[process]") {
  auto job = shell("echo $RANK of $WORLD_SIZE at $TROUPE_ADDRESS; test ${#TROUPE_TOKEN} = 64");
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
  CHECK(job.errors == "");
  for (auto line :
       {"0 of 3 at unix:@troupe-", "[w1] 1 of 3 at unix:@troupe-", "[w2] 2 of 3 at unix:@troupe-"})
    CHECK(Launcher::count(job.output, line) == 1);
  CHECK(job.output.find("[w0]") == std::string::npos);
}

TEST_CASE("the first failing worker gives the exit code, ends the others, and is named with its last lines",
          "[process]") {
  auto job = shell("test $RANK = 1 || exec sleep 1000; echo the reason >&2; exit 7");
  CHECK(job.exit_code() == 7);
  CHECK(job.nothing_left());
  CHECK(job.errors.find("troupe run: w1 (pid ") != std::string::npos);
  CHECK(job.errors.ends_with(") exited with code 7; its last lines:\n  the reason\n"));
}

TEST_CASE("a worker killed by a signal is blamed before those that lost it", "[process]") {
  Folder folder;
  const auto gate = (folder.path / "gate").string();
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  // w0 and w1 end when w2's end of the FIFO closes, that is by its death.
  auto job = shell("if [ $RANK = 2 ]; then exec 3>" + gate + " 4>" + gate + "; kill -9 $$; fi; read x <" +
                   gate + "; exit 4");
  CHECK(job.exit_code() == 137);
  CHECK(job.nothing_left());
  CHECK(job.errors.starts_with("troupe run: w2 (pid "));
  CHECK(job.errors.ends_with(") was killed by signal 9 (SIGKILL)\n"));
}

TEST_CASE("SIGINT and SIGTERM reach every worker once, and give 130 and 143", "[process]") {
  const auto [number, name, code] =
      GENERATE(std::tuple(SIGINT, "INT", 130), std::tuple(SIGTERM, "TERM", 143));
  auto job = shell("trap 'echo stopping; exit 0' " + std::string(name) +
                   "; sleep 1000 & echo ready; while :; do wait; done");
  job.await("ready", 3);
  job.signal(number);
  CHECK(job.exit_code() == code);
  CHECK(job.nothing_left());  // the sleeps are grandchildren
  CHECK(Launcher::count(job.output, "stopping") == 3);
  CHECK(job.errors == "");
}

TEST_CASE("workers that ignore the request are killed after the grace period", "[process]") {
  auto job =
      shell("trap '' INT TERM; echo ready; while :; do sleep 1000; done", {"-n", "2", "--grace", "0.1"});
  job.await("ready", 2);
  job.signal(SIGINT);
  CHECK(job.exit_code() == 130);
  CHECK(job.nothing_left());
}

TEST_CASE("a second Ctrl-C kills at once", "[process]") {
  auto job = shell("trap 'echo no' INT; echo ready; while :; do sleep 1000 & wait; done",
                   {"-n", "2", "--grace", "86400"});
  job.await("ready", 2);
  job.signal(SIGINT);
  job.await("no", 2);
  job.signal(SIGINT);
  CHECK(job.exit_code() == 130);
  CHECK(job.nothing_left());
}

TEST_CASE("a stopped worker does not keep the job from ending", "[process]") {
  auto job = shell("echo ready; if [ $RANK = 1 ]; then kill -STOP $$; fi; exec sleep 1000", {"-n", "2"});
  job.await("ready", 2);
  job.signal(SIGTERM);
  CHECK(job.exit_code() == 143);
  CHECK(job.nothing_left());
}

TEST_CASE("SIGKILL of the launcher leaves no process, grandchildren included", "[process]") {
  auto job = shell("trap '' INT TERM HUP; sleep 1000 & (sleep 1000 & sleep 1000) & echo ready; wait; wait");
  job.await("ready", 3);
  job.signal(SIGKILL);
  job.await_nothing_left();
  CHECK(job.exit_code() == 137);
}

TEST_CASE("what workers leave in the background ends with the job", "[process]") {
  auto job = shell("sleep 1000 & exit 0");
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
}

TEST_CASE("when the driver ends well, workers that go on are stopped with a warning", "[process]") {
  auto job = shell("test $RANK = 0 && exit 0; exec sleep 1000", {"-n", "3", "--grace", "0.2"});
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
  CHECK(job.errors ==
        "troupe run: w0 ended with code 0, and w1, w2 did not end within 0.2 s after it; stopping\n");
}

TEST_CASE("workers that fail because the driver has ended are told with it", "[process]") {
  Folder folder;
  const auto gate = (folder.path / "gate").string();
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  // w1 fails once the launcher has waited for w0.
  auto job = shell("if [ $RANK = 0 ]; then echo $$ >" + gate + "; exit 0; fi; read pid <" + gate + "; " +
                       kGone + "echo nobody answers >&2; exit 3",
                   {"-n", "2"});
  CHECK(job.exit_code() == 3);
  CHECK(job.errors.ends_with(
      ") exited with code 3, after w0 had ended with code 0; its last lines:\n  nobody answers\n"));
  auto failing = shell("test $RANK = 0 && exit 9; exec sleep 1000", {"-n", "3"});
  CHECK(failing.exit_code() == 9);
  CHECK(failing.errors.starts_with("troupe run: w0 (pid "));
}

TEST_CASE("with --keep-going the job outlives workers, and its code is the driver's", "[process]") {
  const int code = GENERATE(0, 5);
  Folder folder;
  const auto gate = (folder.path / "gate").string();
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  // w0 ends once the launcher has waited for w1 and w2.
  auto job = shell("case $RANK in 0) exec 3<>" + gate + "; read pid <&3; " + kGone + "read pid <&3; " +
                       kGone + "exit " + std::to_string(code) + ";; 1) echo $$ >" + gate +
                       "; exit 7;; 2) echo $$ >" + gate + "; kill -9 $$;; esac",
                   {"-n", "3", "--keep-going"});
  CHECK(job.exit_code() == code);
  CHECK(job.nothing_left());
  for (const char* text : {") exited with code 7; the job goes on without it (--keep-going)",
                           ") was killed by signal 9 (SIGKILL); the job goes on without it (--keep-going)"})
    CHECK(Launcher::count(job.errors, text) == 1);
}

TEST_CASE("with --keep-going nothing is said of workers that end with the driver", "[process]") {
  // It has failed, and they hear of it.
  Launcher job({"-n", "3", "--keep-going", program("endings"), "--mode", "unmade"});
  CHECK(job.exit_code() == 1);
  CHECK_THAT(job.errors, Contains("w0: error: ") && !Contains("goes on") && !Contains("w1 (pid"));
  for (const std::string end : {"0", "9"}) {
    Folder folder;
    const auto gate = (folder.path / "gate").string();
    REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
    // w1 fails once the launcher has waited for w0.
    auto late = shell("if [ $RANK = 0 ]; then echo $$ >" + gate + "; exit " + end + "; fi; read pid <" +
                          gate + "; " + kGone + "exit 3",
                      {"-n", "2", "--keep-going"});
    INFO(late.errors);
    CHECK(late.exit_code() == std::atoi(end.c_str()));
    CHECK_THAT(late.errors, !Contains("goes on"));
    if (end == "0")
      CHECK_THAT(late.errors, Contains(") exited with code 3, after w0 had ended with code 0\n"));
  }
}

TEST_CASE("a worker that ends before it has joined ends the job that waits for it", "[process]") {
  for (const char* end : {"exit 0", "exit 9"}) {
    for (const char* flag : {"--keep-going", "--prefix-all"}) {
      auto job = Launcher({"-n", "3", flag, "/bin/sh", "-c",
                           "test $RANK = 2 && " + std::string(end) + "; exec " + program("quickstart")},
                          {"TROUPE_JOIN_TIMEOUT=100000"});
      const int code = job.exit_code();
      INFO(end << " " << flag << "\n" << job.output << job.errors);
      CHECK(job.nothing_left());
      if (code == 9) continue;  // it was seen before w0 began to wait
      CHECK(code == 3);
      CHECK(job.errors.find("troupe run: w2 (pid ") != std::string::npos);
      CHECK(job.errors.find(
                std::string(end) == "exit 0"
                    ? ") exited with code 0 before it had joined the cluster that w0 was waiting for"
                    : ") exited with code 9") != std::string::npos);
    }
  }
}

TEST_CASE("a driver that ends before it has joined ends the job of those that wait for it", "[process]") {
  for (const char* flag : {"--keep-going", "--prefix-all"}) {
    auto job = Launcher({"-n", "3", "--grace", "86400", flag, "/bin/sh", "-c",
                         "test $RANK = 0 && exit 0; exec " + program("quickstart")},
                        {"TROUPE_JOIN_TIMEOUT=100000"});
    const int code = job.exit_code();
    INFO(flag << "\n" << job.output << job.errors);
    CHECK(job.nothing_left());
    CHECK(code == 3);
    CHECK(job.errors.find("troupe run: w0 (pid ") != std::string::npos);
    CHECK(
        job.errors.find(") exited with code 0 before it had joined the cluster that the others were waiting "
                        "for") != std::string::npos);
  }
}

TEST_CASE("what does not end within the grace period is named when it is killed", "[process]") {
  auto job = shell("trap '' TERM; echo ready; while :; do sleep 1000; done", {"-n", "2", "--grace", "0.1"});
  job.await("ready", 2);
  job.signal(SIGTERM);
  CHECK(job.exit_code() == 143);
  CHECK(job.errors == "troupe run: w0, w1 did not end within 0.1 s, and are killed\n");
}

TEST_CASE("a signal to the launcher alone reaches workers whose shell ignored it", "[process]") {
  for (const int number : {SIGQUIT, SIGINT}) {
    const auto before = signal(number, SIG_IGN);  // as for what a script starts in the background
    auto job = shell("ulimit -c 0; echo ready; exec sleep 1000", {"-n", "2", "--grace", "86400"});
    signal(number, before);
    job.await("ready", 2);
    job.signal(number);
    CHECK(job.exit_code() == 128 + number);  // not after the grace
    CHECK(job.nothing_left());
  }
}

TEST_CASE("output that cannot be written is an error of the job, and a log that is full one of its own",
          "[process]") {
  Folder folder;
  const std::string flood = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done";
  Process lost({"/bin/sh", "-c",
                "exec \"$0\" run -n 2 /bin/sh -c 'test $RANK = 0 || { " + flood + "; }' >/dev/full",
                kTroupeCommand});
  CHECK(lost.exit_code() == 1);
  CHECK(lost.errors == "troupe run: standard output cannot be written: No space left on device\n");
  Process capped({"/bin/sh", "-c",
                  "ulimit -f 1; exec \"$0\" run -n 2 --log-dir \"$1\" /bin/sh -c '" + flood + "'",
                  kTroupeCommand, (folder.path / "logs").string()});
  CHECK(capped.exit_code() == 1);
  CHECK(capped.errors.find("a log file is not written any more: File too large") != std::string::npos);
  CHECK(capped.output.find("line 299") != std::string::npos);
}

TEST_CASE("lines of workers are prefixed and never torn", "[process]") {
  const std::string half(300, 'x');
  auto job = shell("i=0; while [ $i -lt 300 ]; do printf " + half + "; printf '%s\\n' " + half +
                       "; i=$((i+1)); done; printf 'no end'",
                   {"-n", "4", "--prefix-all"});
  CHECK(job.exit_code() == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const auto prefix = "[w" + std::to_string(rank) + "] ";
    CHECK(Launcher::count(job.output, prefix + half + half + "\n") == 300);
    CHECK(Launcher::count(job.output, prefix + "no end\n") == 1);
  }
  CHECK(Launcher::count(job.output, "\n") == 4 * 301);
}

TEST_CASE("log files hold each worker's lines, and the driver's output stays as it is", "[process]") {
  Folder folder;
  const auto logs = folder.path / "logs";
  auto job = shell("echo out $RANK; echo err $RANK >&2", {"-n", "2", "--log-dir", logs.string()});
  CHECK(job.exit_code() == 0);
  CHECK(job.output.find("out 0\n") != std::string::npos);
  CHECK(job.output.find("[w1] out 1\n") != std::string::npos);
  for (int rank = 0; rank < 2; ++rank) {
    const auto text = content(logs / ("w" + std::to_string(rank) + ".log"));
    CHECK(Launcher::count(text, "out " + std::to_string(rank) + "\n") == 1);
    CHECK(Launcher::count(text, "err " + std::to_string(rank) + "\n") == 1);
    CHECK(Launcher::count(text, "\n") == 2);
  }
}

TEST_CASE("a pipe in the place of a log file is refused, without waiting for a reader", "[process]") {
  Folder folder;
  REQUIRE(mkfifo((folder.path / "w1.log").c_str(), 0600) == 0);
  auto job = shell("true", {"-n", "2", "--log-dir", folder.path.string()});
  CHECK(job.exit_code() == 2);
  CHECK(job.errors.find("log " + (folder.path / "w1.log").string() +
                        ": cannot be written: it is not a regular file") != std::string::npos);
  CHECK(job.nothing_left());
}

TEST_CASE("bad arguments start nothing and exit with 2", "[process]") {
  Folder folder;
  const auto mark = (folder.path / "started").string(), token = (folder.path / "token").string();
  std::ofstream(token) << "0123456789abcdef0123456789abcdef";
  chmod(token.c_str(), 0644);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"-n", "0"}, "from 1 to 1024, got '0'"},
      {{"-n", "100000"}, "from 1 to 1024, got '100000'"},
      {{"--node-rnk", "1"}, "did you mean --node-rank?"},
      {{"--token-file", token}, token + ": mode is 0644"}};
  for (auto [flags, expected] : cases) {
    auto job = shell("touch " + mark, flags);
    CHECK(job.exit_code() == 2);
    CHECK(job.errors.find(expected) != std::string::npos);
    CHECK(Launcher::count(job.errors, "\n") == 1);
    CHECK_FALSE(std::filesystem::exists(mark));
  }
  chmod(token.c_str(), 0600);
  auto job = shell("test $TROUPE_TOKEN = 0123456789abcdef0123456789abcdef", {"--token-file", token});
  CHECK(job.exit_code() == 0);
}

TEST_CASE("a program that cannot be executed ends the job before it began", "[process]") {
  Folder folder;
  const auto broken = folder.path / "broken";
  std::ofstream(broken) << "#!/nowhere/interpreter\n";
  std::filesystem::permissions(broken, std::filesystem::perms::owner_all);
  Launcher job({"-n", "2", broken.string()});
  CHECK(job.exit_code() == 1);
  CHECK(job.nothing_left());
  CHECK(job.errors == "troupe run: cannot start " + broken.string() +
                          ": its first line asks for /nowhere/interpreter: No such file or directory\n");
  const std::pair<std::string, std::string> others[] = {
      {"#! /bin/sh\r\necho hello\n", "asks for /bin/sh and a carriage return (the line ends as on Windows)"},
      {"echo hello\n", "the first line of a script names what runs it, as #!/bin/sh"},
      {"\177ELF\2\1\1", "it was built for another kind of computer"}};
  for (const auto& [text, why] : others) {
    std::ofstream(broken) << text;
    Launcher refused({"-n", "2", broken.string()});
    CHECK(refused.exit_code() == 1);
    INFO(refused.errors);
    CHECK(refused.errors.find(why) != std::string::npos);
  }
}

TEST_CASE("on a terminal the driver reads the keyboard and Ctrl-C stops the job", "[process]") {
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    signal(SIGINT, SIG_DFL);  // a shell's background jobs, and what they start, ignore it
    execl(kTroupeCommand, kTroupeCommand, "run", "-n", "2", "/bin/sh", "-c",
          "test $RANK = 0 || exec sleep 1000; echo ready; read line; echo got $line; exec sleep 1000",
          nullptr);
    _exit(99);
  }
  std::string screen;
  auto await = [&](const std::string& text) {
    char bytes[1024];
    while (screen.find(text) == std::string::npos) {
      const ssize_t got = read(terminal, bytes, sizeof bytes);
      INFO(screen);
      REQUIRE(got > 0);
      screen.append(bytes, size_t(got));
    }
  };
  await("ready");
  REQUIRE(write(terminal, "words\n", 6) == 6);
  await("got words");
  REQUIRE(write(terminal, "\x03", 1) == 1);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  close(terminal);
}
