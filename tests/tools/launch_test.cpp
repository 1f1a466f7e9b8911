// The pure parts of `troupe run`: options, environment, lines, verdict.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/base/error.h"
#include "tools/launch/ending.h"
#include "tools/launch/job.h"
#include "tools/launch/lines.h"

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
  const auto list = variables_of(options, job, local);
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

TEST_CASE("flags of run end at the program", "[launch]") {
  const auto options = parsed({"-n", "3", "--grace", "0.5", "sh", "-n", "7", "--unknown", "--", "--help"});
  CHECK(options.processes == 3);
  CHECK(options.grace == 0.5);
  CHECK(options.command == std::vector<std::string>{"sh", "-n", "7", "--unknown", "--", "--help"});
}

TEST_CASE("bad arguments of run are refused with one line", "[launch]") {
  for (auto n : {"0", "-1", "100000", "x"})
    CHECK(refusal({"-n", n, "sh"}).find("expects a whole number from 1 to 1024, got '" + std::string(n)) !=
          std::string::npos);
  CHECK(refusal({"--node-rnk", "1", "sh"}).find("did you mean --node-rank?") != std::string::npos);
  CHECK(refusal({}).find("no program given") != std::string::npos);
  CHECK(refusal({"--nnodes", "2", "sh"}).find("needs --master-addr") != std::string::npos);
  CHECK(refusal({"--node-rank", "1", "sh"}).find("--node-rank is 1") != std::string::npos);
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

  CHECK_THROWS_WITH(job_with(options, {}), Catch::Contains("several hosts need one secret"));
  CHECK_THROWS_WITH(job_with(options, {{"TROUPE_TOKEN", "short"}}), Catch::Contains("has 5 bytes"));
  CHECK_THROWS_WITH(job_with(options, {{"TROUPE_TOKEN_FILE", "/no/such"}}),
                    Catch::Contains("[run] TROUPE_TOKEN_FILE: [token] /no/such: No such file"));
  const auto v6 = parsed({"--nnodes", "2", "--master-addr", "::1", "sh"});
  CHECK(job_with(v6, {{"TROUPE_TOKEN", token}}).address == "tcp:[::1]:29500");
}

TEST_CASE("a dry run quotes arguments and hides the secret", "[launch]") {
  const auto options = parsed({"-n", "2", "sh", "-c", "it's $HOME"});
  const auto job = job_with(options, {{"TROUPE_TOKEN", std::string(32, 'z')}});
  const auto line = dry_run_line(options, job, 1);
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
}
