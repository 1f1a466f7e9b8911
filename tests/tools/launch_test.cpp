// The pure parts of `troupe run`: options, environment, lines, verdict.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/base/error.h"
#include "tests/support/folder.h"
#include "tools/launch/assignment.h"
#include "tools/launch/ending.h"
#include "tools/launch/job.h"
#include "tools/launch/lines.h"
#include "tools/launch/remote_host.h"

using namespace troupe::tools;

namespace {

RunOptions parsed(const std::vector<std::string>& arguments) {
  RunOptions options;
  std::ostringstream out, err;
  const auto code = parse_run(arguments, options, out, err);
  INFO(err.str());
  REQUIRE_FALSE(code.has_value());
  return options;
}

std::string refusal(const std::vector<std::string>& arguments) {
  RunOptions options;
  std::ostringstream out, err;
  CHECK(parse_run(arguments, options, out, err) == 2);
  CHECK(out.str().empty());
  return err.str();
}

std::map<std::string, std::string> environment(const RunOptions& options, int64_t local, const Job& job) {
  const auto list = variables_of(options, job, share_of(options, options.node_rank), local);
  return {list.begin(), list.end()};
}

Job job_with(const RunOptions& options, std::map<std::string, std::string> env) {
  env.emplace("PATH", "/bin:/usr/bin");
  return make_job(options, [&](const char* name) {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

/// Exit code and signal as waitpid encodes them.
Ending exited(int64_t rank, int code) { return {rank, 100 + pid_t(rank), code << 8}; }
Ending killed(int64_t rank, int signal) { return {rank, 100 + pid_t(rank), signal}; }

}  // namespace

TEST_CASE("a rehearsal is of one host, and its workers hear of it by a variable") {
  CHECK(parsed({"--rehearse", "p"}).rehearse);
  CHECK_FALSE(parsed({"p"}).rehearse);
  for (const auto& more : std::vector<std::vector<std::string>>{
           {"-H", "a:1,b:1"}, {"--nnodes", "2", "--master-addr", "a"}, {"--max-restarts", "2"}}) {
    auto arguments = more;
    arguments.insert(arguments.end(), {"--rehearse", "p"});
    CHECK_THAT(refusal(arguments),
               Catch::Contains("--rehearse is for one host, and restarts the program itself"));
  }
  auto options = parsed({"-n", "2", "/bin/true"});
  const Job job = job_with(options, {});
  CHECK_FALSE(environment(options, 1, job).contains("TROUPE_REHEARSAL"));
  options.rehearsal = "12:6:/tmp/d";
  CHECK(environment(options, 1, job).at("TROUPE_REHEARSAL") == "12:6:/tmp/d");
}

TEST_CASE("an elastic run says how few and how many workers there may be, and what it does not go with") {
  CHECK_FALSE(parsed({"p"}).elastic);
  const auto same = parsed({"-n", "4", "--elastic", "p", "--elastic=9"});
  REQUIRE(same.elastic);
  CHECK((same.elastic->least == 4 && same.elastic->most == 4 && same.elastic->spares == 0));
  CHECK(same.command == std::vector<std::string>{"p", "--elastic=9"});
  const auto some = parsed({"-n", "4", "--elastic=2:6", "--spares", "1", "--wait", "5", "p"});
  REQUIRE(some.elastic);
  CHECK((some.elastic->least == 2 && some.elastic->most == 6 && some.elastic->wait == 5));
  CHECK(some.world_size() == 5);
  CHECK(parsed({"-n", "4", "--elastic=3", "p"}).elastic->least == 3);
  const Job job = job_with(parsed({"-n", "4", "--elastic=2:6", "--spares", "1", "/bin/true"}), {});
  const auto options = parsed({"-n", "4", "--elastic=2:6", "--spares", "1", "/bin/true"});
  CHECK(environment(options, 4, job).at("WORLD_SIZE") == "5");
  CHECK(environment(options, 4, job).at("TROUPE_ELASTIC") == "2:6:4:30");
  CHECK(environment(options, 7, job).at("WORLD_SIZE") == "8");  // it comes later
  for (const char* text : {"--elastic=5", "--elastic=0:6", "--elastic=2:3", "--elastic=a", "--elastic=2:6:1"})
    CHECK_THAT(refusal({"-n", "4", text, "p"}), Catch::Contains("expected how few and how many"));
  CHECK_THAT(refusal({"--spares", "1", "p"}), Catch::Contains("give --elastic as well"));
  CHECK_THAT(refusal({"--elastic", "--keep-going", "p"}), Catch::Contains("give one"));
  CHECK_THAT(refusal({"--elastic", "--rehearse", "p"}), Catch::Contains("without --elastic"));
  CHECK_THAT(refusal({"--elastic", "-H", "a:1,b:1", "p"}), Catch::Contains("give -n alone"));
  CHECK_THAT(refusal({"--elastic", "--nnodes", "2", "--master-addr", "a", "p"}), Catch::Contains("-n alone"));
}

TEST_CASE("flags of run end at the program", "[launch]") {
  const auto options = parsed({"-n", "3", "--grace", "0.5", "sh", "-n", "7", "--unknown", "--", "--help"});
  CHECK(options.processes == 3);
  CHECK(options.grace == 0.5);
  CHECK(options.command == std::vector<std::string>{"sh", "-n", "7", "--unknown", "--", "--help"});
  CHECK(parsed({"-n", "3", "sh", "--log-dir=", "-H", ""}).command ==
        std::vector<std::string>{"sh", "--log-dir=", "-H", ""});
}

TEST_CASE("bad arguments of run are refused with one line", "[launch]") {
  for (auto n : {"0", "-1", "100000", "x"})
    CHECK(refusal({"-n", n, "sh"}).find("expects a whole number from 1 to 1024, got '" + std::string(n)) !=
          std::string::npos);
  CHECK(refusal({"--node-rnk", "1", "sh"}).find("did you mean --node-rank?") != std::string::npos);
  CHECK(refusal({}).find("no program given") != std::string::npos);
  CHECK(refusal({"--nnodes", "2", "sh"}).find("needs --master-addr") != std::string::npos);
  CHECK(refusal({"--node-rank", "1", "sh"}).find("--node-rank is 1") != std::string::npos);
  for (const std::string flag :
       {"-H", "--host", "--hostfile", "--rsh", "--export", "--master-addr", "--rdzv-endpoint", "--rdzv-id",
        "--token-file", "--log-dir", "--tee", "--redirects"})
    CHECK(refusal({flag, "", "sh"}).find((flag == "-H" ? "--host" : flag) + " needs a value, got ''") !=
          std::string::npos);
  CHECK(refusal({"--master-port", "70000", "sh"}).find("from 1 to 65535") != std::string::npos);
}

TEST_CASE("a job on one host meets at an abstract address with a random secret", "[launch]") {
  const auto options = parsed({"-n", "3", "sh"});
  const auto job = job_with(options, {}), other = job_with(options, {});
  CHECK(job.token.size() == 64);
  CHECK(job.token != other.token);
  CHECK(job.id != other.id);
  auto env = environment(options, 2, job);
  CHECK(env["RANK"] == "2");
  CHECK(env["WORLD_SIZE"] == "3");
  CHECK(env["LOCAL_RANK"] == "2");
  CHECK(env["LOCAL_WORLD_SIZE"] == "3");
  CHECK(env["GROUP_RANK"] == "0");
  CHECK(env["MASTER_ADDR"] == "127.0.0.1");
  CHECK(env["TROUPE_ADDRESS"] == "unix:@troupe-" + job.id);
  CHECK(env["TROUPE_JOB"] == job.id);
  CHECK(env["TROUPE_TOKEN"] == job.token);
}

TEST_CASE("a job on several hosts offsets its ranks and meets over TCP", "[launch]") {
  const auto options = parsed({"-n", "4", "--nnodes", "3", "--node-rank", "2", "--master-addr", "10.0.0.1",
                               "--master-port", "4000", "sh"});
  const std::string token(32, 't');
  auto env = environment(options, 1, job_with(options, {{"TROUPE_TOKEN", token}}));
  CHECK(env["RANK"] == "9");
  CHECK(env["WORLD_SIZE"] == "12");
  CHECK(env["LOCAL_RANK"] == "1");
  CHECK(env["GROUP_RANK"] == "2");
  CHECK(env["TROUPE_ADDRESS"] == "tcp:10.0.0.1:4000");
  CHECK(env["TROUPE_TOKEN"] == token);
  CHECK(env["TROUPE_JOB"] == job_with(options, {{"TROUPE_TOKEN", token}}).id);

  CHECK_THROWS_WITH(job_with(options, {}), Catch::Contains("workers that are started apart need one secret"));
  CHECK_THROWS_WITH(job_with(options, {{"TROUPE_TOKEN", "short"}}), Catch::Contains("has 5 bytes"));
  CHECK_THROWS_WITH(job_with(options, {{"TROUPE_TOKEN_FILE", "/no/such"}}),
                    Catch::Contains("[run] TROUPE_TOKEN_FILE: [token] /no/such: No such file"));
  const auto v6 = parsed({"--nnodes", "2", "--master-addr", "::1", "sh"});
  CHECK(job_with(v6, {{"TROUPE_TOKEN", token}}).address == "tcp:[::1]:29500");
}

TEST_CASE("torchrun's flags mean the same here, with - or _ in their names", "[launch]") {
  const auto options = parsed({"--nproc_per_node=4", "--nnodes", "3", "--node_rank", "2", "--rdzv_endpoint",
                               "10.0.0.1:4000", "--rdzv-id", "mine", "sh"});
  CHECK(options.processes == 4);
  CHECK(options.master_addr == "10.0.0.1");
  const auto job = job_with(options, {{"TROUPE_TOKEN", std::string(32, 't')}});
  CHECK(job.address == "tcp:10.0.0.1:4000");
  CHECK(job.id == "mine");
  CHECK(share_of(options, 2).first == 8);
  CHECK(parsed({"--rdzv-endpoint", "[::1]:4000", "sh"}).master_addr == "::1");
  CHECK(parsed({"--rdzv-endpoint", "fd00::2", "sh"}).master_addr == "fd00::2");
  CHECK(parsed({"--standalone", "-n", "2", "sh"}).world_size() == 2);
  CHECK(refusal({"--nnodes", "2", "--rdzv-endpoint", "a:1", "sh"}).find("give --node-rank as well") !=
        std::string::npos);
  CHECK(refusal({"--standalone", "--nnodes", "2", "sh"}).find("--standalone means") != std::string::npos);
  for (const char* endpoint : {":1", "a:0", "a:70000", "a:", "[::1"})
    CHECK(refusal({"--rdzv-endpoint", endpoint, "sh"}).find("expected host 0 and a port") !=
          std::string::npos);
}

TEST_CASE("log files get the streams that --tee and --redirects choose", "[launch]") {
  const auto places = [](const std::vector<std::string>& flags, int64_t local) {
    auto all = flags;
    all.insert(all.end(), {"--log-dir", "logs", "sh"});
    const auto options = parsed(all);
    std::string text;
    for (int stream : {0, 1}) {
      const auto p = options.places(local, stream);
      text += std::string(p.shown ? "s" : "-") + (p.logged ? "l" : "-");
    }
    return text;
  };
  CHECK(places({}, 0) == "slsl");
  CHECK(places({"--tee", "1"}, 0) == "sls-");
  CHECK(places({"--tee", "0"}, 0) == "s-s-");
  CHECK(places({"--redirects", "3"}, 5) == "-l-l");
  CHECK(places({"--redirects", "2", "--tee", "1"}, 0) == "sl-l");
  CHECK(places({"--tee", "0:3,1:2"}, 0) == "slsl");
  CHECK(places({"--tee", "0:3,1:2"}, 1) == "s-sl");
  CHECK(places({"--tee", "0:3,1:2"}, 2) == "s-s-");
  CHECK_FALSE(parsed({"sh"}).places(0, 0).logged);
  for (const char* wrong : {"4", "-1", "x", "0:", "0:4", "0:1,", ":1", "1024:1"})
    CHECK(refusal({"--log-dir", "logs", "--tee", wrong, "sh"}).find("--tee is '") != std::string::npos);
  CHECK(refusal({"--tee", "1", "sh"}).find("give --log-dir as well") != std::string::npos);
}

namespace {

std::string hosts_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const auto& h : hosts) text += h.name + "/" + std::to_string(h.processes) + " ";
  return text;
}

std::string hostfile_text(const std::string& content) {
  const troupe::testing::Folder folder;
  return hosts_text(read_hostfile(folder.file("hosts", content)));
}

}  // namespace

TEST_CASE("hosts are named as Open MPI and MPICH name them", "[launch]") {
  CHECK(hosts_text(parse_hosts("a:4,b")) == "a/4 b/0 ");
  CHECK(hosts_text(parse_hosts("me@10.0.0.2:2,[fd00::2]:3,fe80::1%eth0,me@[::2]")) ==
        "me@10.0.0.2/2 fd00::2/3 fe80::1%eth0/0 me@::2/0 ");
  CHECK(hostfile_text("# ours\na slots=4  # a comment\n\n b:2\n\tc\r\n[fd00::2] slots=1") ==
        "a/4 b/2 c/0 fd00::2/1 ");
  for (const char* wrong : {"", "a,,b", "a:0", "a:x", "a:1025", "-oProxyCommand=x", "me@-a", "@a", "a@b@c",
                            "a;b", "a b", "[a]:2", "[::1", "[::1]2", "a:2:3", "$(a)"})
    CHECK_THROWS_WITH(parse_hosts(wrong), Catch::StartsWith("[run] -H: "));
  CHECK_THROWS_WITH(parse_hosts("a:2,b,a"), Catch::Contains("a is there already: name each host once"));
  CHECK_THROWS_WITH(parse_hosts("a,me@a"), Catch::Contains("a is there already"));
  CHECK_THROWS_WITH(hostfile_text("a\nb\na slots=2"),
                    Catch::Contains("/hosts:3: a is there already") && Catch::Contains("/hosts:1)"));
  CHECK_THROWS_WITH(hostfile_text("a slots=2 max_slots=4"),
                    Catch::Contains("'max_slots=4' is not known here"));
  CHECK_THROWS_WITH(hostfile_text("a:2 slots=2"), Catch::Contains("is there twice"));
  CHECK_THROWS_WITH(hostfile_text("# nobody\n"), Catch::Contains("names no host"));
  CHECK_THROWS_WITH(read_hostfile("/no/such"), Catch::Contains("--hostfile: /no/such: no such file"));
  const troupe::testing::Folder folder;
  const std::string pipe = (folder.path / "pipe").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/null")})
    CHECK_THROWS_WITH(read_hostfile(path),
                      Catch::Contains(path + ": is not a regular file, expected a file of hosts"));
  CHECK_THROWS_WITH(read_hostfile(folder.path.string()), Catch::Contains("is a directory"));
  std::filesystem::resize_file(folder.file("huge", ""), size_t{1} << 40);
  CHECK_THROWS_WITH(read_hostfile((folder.path / "huge").string()),
                    Catch::Contains("has 1099511627776 bytes"));
  CHECK(is_this_host({"localhost"}));
  CHECK(is_this_host({"127.0.0.5"}));
  CHECK(is_this_host({"::1"}));
  CHECK_FALSE(is_this_host({"me@localhost"}));
  CHECK_FALSE(is_this_host({"192.0.2.1"}));
  CHECK_FALSE(is_this_host({"host.invalid"}));
}

TEST_CASE("a job on listed hosts has its workers in their order, and a secret of its own", "[launch]") {
  const auto options = parsed({"-H", "one.invalid:2,two.invalid:3,three.invalid", "-n", "4", "prog"});
  CHECK(options.world_size() == 9);
  CHECK(share_of(options, 1).first == 2);
  CHECK(share_of(options, 2).first == 5);
  CHECK(share_of(options, 2).processes == 4);
  const auto job = job_with(options, {}), other = job_with(options, {});
  CHECK(job.address.starts_with("tcp:one.invalid:2"));
  CHECK(job.id != other.id);
  CHECK(job.token.size() == 64);
  CHECK(job_with(parsed({"-H", "a.invalid", "--master-port", "4000", "--master-addr", "::1", "prog"}), {})
            .address == "tcp:[::1]:4000");
  CHECK(job_with(parsed({"-H", "localhost,127.0.0.1", "prog"}), {}).address.starts_with("unix:@troupe-"));
  CHECK_THROWS_WITH(job_with(parsed({"-H", "localhost,far.invalid", "prog"}), {}),
                    Catch::Contains("the first host is localhost, where far.invalid does not find it"));
  CHECK(refusal({"-H", "a:2,b:2", "-n", "3", "sh"}).find("4 in all; -n 3 is for hosts that do not") !=
        std::string::npos);
  CHECK(refusal({"-H", "a", "--nnodes", "2", "sh"}).find("start all hosts from here") != std::string::npos);
  CHECK(refusal({"-H", "a", "--hostfile", "b", "sh"}).find("give one") != std::string::npos);
  CHECK(refusal({"-H", "a", "--standalone", "sh"}).find("--standalone means") != std::string::npos);
  CHECK(refusal({"-H", "a", "--rsh", " ", "sh"}).find("--rsh is empty") != std::string::npos);
}

TEST_CASE("the remote shell asks for no password, and its words are quoted", "[launch]") {
  const auto command = agent_command("/usr/bin/ssh -p 22", {"far.invalid"});
  REQUIRE(command.size() == 9);
  CHECK(command[4] == "-oBatchMode=yes");
  CHECK(command[7] == "far.invalid");
  CHECK(command[8].starts_with("exec /bin/sh -c 'test -x "));
  CHECK(command[8].ends_with("; exec troupe run --agent'"));
  CHECK(agent_command("rsh", {"far.invalid"}).size() == 3);
  CHECK(agent_command("rsh", {"localhost"}).back() == kAgentFlag);
  CHECK_THROWS_WITH(variables_to_send({"NO_SUCH_VARIABLE"}), Catch::Contains("which is not set here"));
}

TEST_CASE("what launcher and agent say is read back however it is cut, and anything else is refused",
          "[launch]") {
  const Assignment a{.folder = "/a b",
                     .command = {"prog", "", "x=y\n"},
                     .first = 3,
                     .count = 2,
                     .variables = {{"TROUPE_TOKEN", "secret=1"}, {"EMPTY", ""}},
                     .grace = 0.25};
  const auto text = a.encode();
  const auto b = Assignment::decode(text);
  CHECK(b.folder == a.folder);
  CHECK(b.command == a.command);
  CHECK(b.first == 3);
  CHECK(b.count == 2);
  CHECK(b.variables == a.variables);
  CHECK(b.grace == 0.25);
  CHECK_FALSE(b.check);
  for (size_t n = 0; n < text.size();
       ++n)  // whole fields may be missing at the end, which is an assignment, too
    if (n > 0 && text[n - 1] != '\0') CHECK_THROWS_AS(Assignment::decode(text.substr(0, n)), troupe::Error);
  CHECK_THROWS_AS(Assignment::decode(""), troupe::Error);
  CHECK_THROWS_AS(Assignment::decode(text + "other=1" + '\0'), troupe::Error);
  CHECK_THROWS_AS(Assignment::decode(text + "count=0" + '\0'), troupe::Error);
  CHECK_THROWS_AS(Assignment::decode(text + "count=x" + '\0'), troupe::Error);

  const std::string stream = AgentFrame{AgentFrame::output, 2, "bytes\n"}.encode() +
                             AgentFrame{AgentFrame::ended, 258, "0"}.encode() +
                             AgentFrame{AgentFrame::errors, 0, ""}.encode();
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    AgentFrames frames;
    std::string seen;
    for (size_t at = 0; at < stream.size(); at += piece)
      CHECK(frames.feed(std::string_view(stream).substr(at, piece), [&](const AgentFrame& f) {
        seen += std::string(1, f.kind) + std::to_string(f.local) + std::string(f.bytes) + ".";
      }));
    CHECK(seen == "o2bytes\n.x2580.e0.");
  }
  AgentFrames frames;
  CHECK_FALSE(frames.feed("Last login: today\n", [](const AgentFrame&) {}));
  CHECK_FALSE(AgentFrames().feed(std::string("o\0\0\0\0\xff\xff\xff\xff", 9), [](const AgentFrame&) {}));
}

TEST_CASE("a dry run quotes arguments and hides the secret", "[launch]") {
  const auto options = parsed({"-n", "2", "sh", "-c", "it's $HOME"});
  const auto job = job_with(options, {{"TROUPE_TOKEN", std::string(32, 'z')}});
  const auto line = dry_run_line(options, job, share_of(options, 0), 1);
  CHECK(line.find("RANK=1 WORLD_SIZE=2") == 0);
  CHECK(line.find("zzz") == std::string::npos);
  CHECK(line.ends_with("/sh -c 'it'\\''s $HOME'"));
}

TEST_CASE("a program that is not there is refused with a hint", "[launch]") {
  CHECK(find_program("/bin/sh", "/nowhere", "") == "/bin/sh");
  CHECK(find_program("sh", "/bin", "") == "/bin/sh");
  CHECK(find_program("sh", "/nowhere", "/nowhere:/bin") == "/bin/sh");
  CHECK_THROWS_WITH(find_program("/nowhere/prog", "/bin", ""),
                    Catch::Contains("no program at /nowhere/prog"));
  CHECK_THROWS_WITH(find_program("/etc/passwd", "/bin", ""), Catch::Contains("cannot be executed"));
  CHECK_THROWS_WITH(find_program("bashh", "/bin", ""), Catch::Contains("did you mean bash?"));
}

TEST_CASE("lines come whole, prefixed, however the bytes are cut", "[launch]") {
  const std::string text = "first\n\nthird line\nno end";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Lines lines("[w1] ");
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      lines.feed(std::string_view(text).substr(at, piece), out);
      CHECK((out.empty() || out.back() == '\n'));
    }
    CHECK(out == "[w1] first\n[w1] \n[w1] third line\n");
    lines.finish(out);
    CHECK(out == "[w1] first\n[w1] \n[w1] third line\n[w1] no end\n");
    CHECK(lines.last().size() == 4);
  }
}

TEST_CASE("endless lines are cut and only the newest are remembered", "[launch]") {
  Lines lines("");
  std::string out;
  lines.feed(std::string(3 * Lines::kLongest, 'x'), out);
  CHECK(out.size() == 3 * (Lines::kLongest + 1));
  for (int i = 0; i < 100; ++i) lines.feed(std::to_string(i) + "\n", out);
  CHECK(lines.last().size() == Lines::kRemembered);
  CHECK(lines.last().front() == "80");
}

TEST_CASE("the cause is reported, not the consequence that was seen first", "[launch]") {
  CHECK_FALSE(likely_cause({}));
  CHECK_FALSE(likely_cause({exited(0, 0), exited(1, 0)}));
  CHECK(likely_cause({exited(0, kLostPeer), exited(1, kLostPeer), killed(2, 9)})->rank == 2);
  CHECK(likely_cause({exited(0, kLostPeer), exited(1, 1)})->rank == 1);
  CHECK(likely_cause({exited(2, 3), exited(1, 1)})->rank == 2);
  CHECK(likely_cause({exited(2, 3), exited(1, 3), exited(0, 3)})->rank == 0);
  CHECK(likely_cause({exited(2, 3), exited(0, 1)})->rank == 2);
  CHECK(likely_cause({exited(2, 3), killed(1, 11), killed(0, 9)})->rank == 1);
  CHECK(killed(2, 9).text() == "w2 (pid 102) was killed by signal 9 (SIGKILL)");
  CHECK(killed(2, 9).exit_code() == 137);
  CHECK(exited(1, 4).text() == "w1 (pid 101) exited with code 4");
  CHECK(Ending{1, 101, 4 << 8, "far"}.text() == "w1 (pid 101 on far) exited with code 4");
  CHECK(Ending{1, 101, 9, "far", "ssh ended with code 255"}.text() ==
        "w1 (pid 101 on far) was lost: ssh ended with code 255");
}
