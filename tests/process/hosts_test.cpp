// `troupe run -H`: workers on several hosts.
#include <signal.h>
#include <sys/stat.h>

#include "tests/process/far_site.h"

using troupe::testing::content;
using troupe::testing::FarSite;
using troupe::testing::Folder;
using troupe::testing::free_port;
using troupe::testing::kTroupeCommand;
using troupe::testing::Launcher;
using troupe::testing::Process;
using troupe::testing::program;
using troupe::testing::skip_test;

TEST_CASE("workers of several hosts are numbered from the first on, and print as on one", "[process]") {
  const FarSite site("echo 'Welcome to this host.'; printf 'no end'; cd /");
  auto job = site.shell(
      "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, host $GROUP_RANK, $TROUPE_LOG, $MINE, "
      "$(pwd); "
      "test ${#TROUPE_TOKEN} = 64; printf 'no end' >&2",
      {"--export", "MINE"}, {"TROUPE_LOG=error", "MINE=a b"});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  CHECK(code == 0);
  CHECK(job.nothing_left());
  const std::string rest = ", error, a b, " + std::filesystem::current_path().string() + "\n";
  CHECK(Process::count(job.output, "0 of 3, 0 of 2, host 0" + rest) == 1);
  CHECK(Process::count(job.output, "[w1] 1 of 3, 1 of 2, host 0" + rest) == 1);
  CHECK(Process::count(job.output, "[w2] 2 of 3, 0 of 1, host 1" + rest) == 1);
  CHECK(Process::count(job.output, "\n") == 3);
  CHECK(Process::count(job.errors, "[w2] no end\n") == 1);
  for (const char* chatter : {"[east] Welcome to this host.\n", "[east] no end\n"})
    CHECK(Process::count(job.errors, chatter) == 1);
  // The secret is in no command line.
  const std::string command = content(site.folder.path / "west.command");
  CHECK(command.find("run --agent") != std::string::npos);
  CHECK(command.find("TOKEN") == std::string::npos);
}

TEST_CASE("a training job runs on several hosts", "[process]") {
  const FarSite site;
  auto arguments = site.flags();
  arguments.push_back(program("quickstart"));
  Launcher job(arguments);
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  CHECK(code == 0);
  CHECK(job.nothing_left());
}

TEST_CASE("the hosts of a job that are all this one need no remote shell, and meet without a port",
          "[process]") {
  Launcher job(
      {"-H", "localhost:2", "--rsh", "/nowhere/ssh", "/bin/sh", "-c", "echo $RANK at $TROUPE_ADDRESS"});
  CHECK(job.exit_code() == 0);
  CHECK(job.errors == "");
  CHECK(Process::count(job.output, "1 at unix:@troupe-") == 1);
}

TEST_CASE("a worker that fails on another host gives the exit code, and is named with its host",
          "[process]") {
  const FarSite site;
  auto job = site.shell("test $RANK = 2 || exec sleep 1000; echo the reason >&2; exit 7");
  CHECK(job.exit_code() == 7);
  CHECK(job.nothing_left());
  CHECK(job.errors.find(" on west) exited with code 7; its last lines:\n  the reason\n") !=
        std::string::npos);
}

TEST_CASE("a worker killed on another host is blamed before those that lost it", "[process]") {
  const FarSite site;
  const auto gate = (site.folder.path / "gate").string();
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  auto job = site.shell("if [ $RANK = 2 ]; then exec 3>" + gate + " 4>" + gate +
                        "; kill -9 $$; fi; read x <" + gate + "; exit 4");
  CHECK(job.exit_code() == 137);
  CHECK(job.nothing_left());
  CHECK(job.errors.find(" on west) was killed by signal 9 (SIGKILL)\n") != std::string::npos);
}

TEST_CASE("Ctrl-C reaches every host once, and a second one kills", "[process]") {
  const FarSite site;
  {
    auto job =
        site.shell("trap 'echo stopping; exit 0' INT; sleep 1000 & echo ready; while :; do wait; done");
    job.await("ready", 3);
    job.signal(SIGINT);
    CHECK(job.exit_code() == 130);
    CHECK(job.nothing_left());
    CHECK(Process::count(job.output, "stopping") == 3);
    CHECK(job.errors == "");
  }
  auto job =
      site.shell("trap 'echo no' INT; echo ready; while :; do sleep 1000 & wait; done", {"--grace", "86400"});
  job.await("ready", 3);
  job.signal(SIGINT);
  job.await("no", 3);
  job.signal(SIGINT);
  CHECK(job.exit_code() == 130);
  CHECK(job.nothing_left());
}

TEST_CASE("a launcher that is killed leaves nothing on any host", "[process]") {
  const FarSite site;
  auto job =
      site.shell("trap '' INT TERM HUP; sleep 1000 & (sleep 1000 & sleep 1000) & echo ready; wait; wait",
                 {"--grace", "0.2"});
  job.await("ready", 3);
  job.signal(SIGKILL);
  CHECK(job.exit_code() == 137);
  job.await_nothing_left();
}

TEST_CASE("an agent that is killed loses its workers, and the others end", "[process]") {
  const FarSite site;
  auto job = site.shell("sleep 1000 & echo ready; wait; exit 4");
  job.await("ready", 3);
  REQUIRE(kill(site.agent("west"), SIGKILL) == 0);
  CHECK(job.exit_code() == 137);
  job.await_nothing_left();
  CHECK(job.errors.find(" on west) was lost: ") != std::string::npos);
}

TEST_CASE("a worker or an agent that is killed on one host: all hosts' workers start again", "[process]") {
  const FarSite site;
  const bool agent = GENERATE(false, true);
  auto job = site.shell("test $TROUPE_RESTART = 1 && { echo again; exit 0; }; echo ready; " +
                            std::string(agent ? "" : "test $RANK = 2 && kill -9 $$; ") + "exec sleep 1000",
                        {"--max-restarts", "1"});
  if (agent) {
    job.await("ready", 3);
    REQUIRE(kill(site.agent("west"), SIGKILL) == 0);
  }
  CHECK(job.exit_code() == 0);
  job.await_nothing_left();
  CHECK(Process::count(job.errors, "all start again: restart 1 of 1\n") == 1);
  CHECK(Process::count(job.output, "again") == 3);
}

TEST_CASE("what workers of other hosts leave in the background lives as long as the job", "[process]") {
  const FarSite site;
  const auto gate = (site.folder.path / "gate").string();
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  auto job =
      site.shell("case $RANK in 0) read x <" + gate +
                 ";; 2) pid=$$; (while kill -0 $pid 2>/dev/null; do sleep 0.01; done; echo late; echo >" +
                 gate + ") & esac");
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.output, "[w2] late\n") == 1);
}

TEST_CASE("logs of workers on all hosts are written by the launcher, and may be all that there is",
          "[process]") {
  const FarSite site;
  const auto logs = (site.folder.path / "logs").string();
  auto job =
      site.shell("echo out $RANK; echo err $RANK >&2", {"--log-dir", logs, "--tee", "1", "--redirects", "2"});
  CHECK(job.exit_code() == 0);
  CHECK(job.errors == "");
  CHECK(Process::count(job.output, "\n") == 3);
  for (const char* rank : {"0", "1", "2"}) {
    const auto text = content(logs + "/w" + rank + ".log");
    CHECK(text.find(std::string("out ") + rank + "\n") != std::string::npos);
    CHECK(text.find(std::string("err ") + rank + "\n") != std::string::npos);
  }
}

TEST_CASE("a host that cannot take part is named with the reason, and nothing is left", "[process]") {
  // What stands for the remote shell, and what is said of it.
  const std::tuple<std::string, int, std::string> cases[] = {
      {"test $host = east || { echo 'west: Name or service not known' >&2; exit 255; }", 1,
       "rsh ended with code 255 before troupe answered there"},
      {"test $host = east || exec /nowhere/troupe", 1, "troupe run: west: no troupe there, neither at "},
      {"test $host = east || exec echo 'troupe-agent 7 0.0.9'", 1,
       "troupe run: west: it has troupe-agent 7 0.0.9, and this host "}};
  for (const auto& [chatter, code, text] : cases) {
    const FarSite site(chatter);
    auto job = site.shell("exec sleep 1000");
    const int got = job.exit_code();
    INFO(chatter << "\n" << job.output << job.errors);
    CHECK(got == code);
    job.await_nothing_left();  // an agent that was about to answer finds its lifeline cut
    CHECK(job.errors.find(text) != std::string::npos);
  }
  const FarSite waits("test $host = east || exec sleep 1000");
  auto silent = waits.shell("exec sleep 1000", {}, {"TROUPE_JOIN_TIMEOUT=0.5"});
  CHECK(silent.exit_code() == 1);
  silent.await_nothing_left();
  CHECK(silent.errors.find("west: nothing answers there within 0.5 s") != std::string::npos);
  // A list that names a host twice.
  Launcher twice(
      {"--hostfile", waits.folder.file("hosts", "east:2\nwest\n\neast slots=1\n"), "--rsh", waits.rsh, "sh"});
  CHECK(twice.exit_code() == 2);
  CHECK(twice.errors.find("/hosts:4: east is there already (") != std::string::npos);
  CHECK(twice.errors.find("name each host once, with the number of its processes, as east:4") !=
        std::string::npos);
  // A program that the hosts do not have.
  const FarSite site;
  auto arguments = site.flags();
  arguments.push_back("./nothing-of-that-name");
  Launcher missing(arguments);
  CHECK(missing.exit_code() == 2);
  CHECK(missing.errors.find(": no program at ./nothing-of-that-name; is it built?\n") != std::string::npos);
  // A program that one of them does not have.
  const FarSite poor("test $host = east || PATH=/usr/bin:/bin");
  poor.folder.file("here-alone", "#!/bin/sh\nexec sleep 1000\n", 0700);
  arguments = poor.flags();
  arguments.push_back("here-alone");
  Launcher half(arguments, {"PATH=" + poor.folder.path.string() + ":/usr/bin:/bin"});
  CHECK(half.exit_code() == 2);
  half.await_nothing_left();
  CHECK(half.errors.find("troupe run: west: no program 'here-alone' beside troupe") != std::string::npos);
  // Where it is this host's own ssh that does not come in.
  std::filesystem::rename(site.rsh, site.folder.path / "ssh");
  std::ofstream(site.folder.path / "ssh") << "#!/bin/sh\nexit 255\n";
  Launcher locked({"-H", "west", "--rsh", (site.folder.path / "ssh").string() + " -p 2222", "sh"});
  CHECK(locked.exit_code() == 1);
  CHECK(locked.errors.find("ssh did not get in; it has to reach the host, without a password and with a host "
                           "key that it knows: "
                           "try " +
                           (site.folder.path / "ssh").string() + " -p 2222 -oBatchMode=yes west true") !=
        std::string::npos);
}

TEST_CASE(
    "troupe run --check says what is found on every host and starts nothing, --dry-run how it would go there",
    "[process]") {
  const FarSite site;
  auto job = site.shell("touch started", {"--check"});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  CHECK(code == 0);
  CHECK(job.nothing_left());
  CHECK(job.line("launcher: ").starts_with("a program started here runs alone"));
  CHECK(job.line("workers: ") == "3");
  CHECK(job.line("meet at: ").starts_with("tcp:127.0.0.1:"));
  CHECK(job.line("secret: ") == "made for this job");
  CHECK(job.line("w0 to w1 on: ").starts_with("east, by " + site.rsh + " east "));
  CHECK(job.line("west: ").ends_with(" cores, /bin/sh"));
  CHECK_FALSE(std::filesystem::exists("started"));
  Process inside(
      {kTroupeCommand, "run", "--check"},
      {"RANK=1", "WORLD_SIZE=3", "TROUPE_ADDRESS=tcp:host0:29500", "TROUPE_TOKEN=0123456789abcdef"});
  CHECK(inside.exit_code() == 0);
  CHECK(inside.line("launcher: ") ==
        "a program started here is w1 of 3 (RANK), and w0 is at tcp:host0:29500");
  auto dry = site.shell("touch started", {"--dry-run"});
  CHECK(dry.exit_code() == 0);
  CHECK(Process::count(dry.output, "TROUPE_TOKEN=... ") == 3);
  CHECK_FALSE(std::filesystem::exists("started"));
}

TEST_CASE("ssh starts workers", "[process]") {
  const char* sshd = "/usr/sbin/sshd";
  if (access(sshd, X_OK) != 0) return skip_test("there is no sshd (Debian's openssh-server has it)");
  const Folder folder;
  const std::string at = folder.path.string() + "/", port = std::to_string(free_port());
  for (const char* key : {"host", "user"}) {
    Process made({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at + key});
    REQUIRE(made.exit_code() == 0);
  }
  std::filesystem::copy(at + "user.pub", at + "authorized");
  std::ofstream(at + "config") << "ListenAddress 127.0.0.1\nPort " << port << "\nHostKey " << at
                               << "host\nAuthorizedKeysFile " << at
                               << "authorized\nStrictModes no\nUsePAM no\nPidFile none\n";
  std::error_code ignored;  // root's sshd wants it
  std::filesystem::create_directories("/run/sshd", ignored);
  Process server({sshd, "-D", "-e", "-f", at + "config"});
  server.await_error("Server listening");
  const char* user = getenv("USER");
  const std::string name = std::string(user && *user ? user : "root") + "@127.0.0.1";
  Launcher job({"-H", name + ":2", "--rsh",
                "ssh -F none -p " + port + " -i " + at +
                    "user -oStrictHostKeyChecking=no -oUserKnownHostsFile=" + at + "known",
                "/bin/sh", "-c", "echo $RANK; test $RANK = 0 || exit 7; exec sleep 1000"});
  const int code = job.exit_code();
  INFO(job.output << job.errors << server.errors);
  CHECK(code == 7);
  CHECK(Process::count(job.output, "[w1] 1\n") == 1);
  CHECK(job.errors.find(" on " + name + ") exited with code 7") != std::string::npos);
  server.signal(SIGTERM);
}
