// A training job over processes: what it keeps, and how it ends when a part of it does.
#include <map>
#include <sstream>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"

using namespace troupe::testing;

namespace {

Launcher probe(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"-n", "3", program("probe")});
  return Launcher(flags);
}

void no_socket_left(const Process& job) {
  const auto addresses = job.lines("address unix:@");
  CHECK(addresses.size() == 3);
  const std::string sockets = content("/proc/net/unix");
  for (const auto& line : addresses) CHECK(sockets.find(line.substr(line.find('@'))) == std::string::npos);
}

int64_t number_after(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  INFO(key << " in " << text);
  REQUIRE(at != std::string::npos);
  return std::strtoll(text.c_str() + at + key.size(), nullptr, 10);
}

// "contexts 0 steps_total 2" without what only ever grows, and without what the whole process has.
std::string present(const std::string& counters) {
  std::istringstream words(counters);
  std::string kept;
  for (std::string key, value; words >> key >> value;)
    if (!key.ends_with("_total") && !key.starts_with("process_")) kept += key + " " + value + " ";
  return kept;
}

double noticed_ms(const Process& job) { return std::strtod(job.line("noticed after ").c_str(), nullptr); }

}  // namespace

TEST_CASE("a thousand steps over processes leave no counter up and no memory behind", "[process]") {
  auto job = probe({"--mode", "steps", "--steps", "1000"});
  CHECK(job.exit_code() == 0);
  CHECK(job.errors == "");
  CHECK(job.nothing_left());
  for (const std::string name : {"w0", "w1", "w2"}) {
    std::vector<std::string> seen;
    for (const std::string step : {"1 ", "200 ", "1000 "})
      seen.push_back(present(job.line("counters " + step + name + " ")));
    INFO(name << ": " << seen[0]);
    CHECK(seen[1] == seen[0]);
    CHECK(seen[2] == seen[0]);
    for (const std::string key :
         {"contexts ", "send_nodes ", "receive_nodes ", "backward_passes ", "pending_references "})
      CHECK(number_after(seen[0], key) == 0);
    CHECK(number_after(seen[0], "owned_references ") == (name == "w0" ? 0 : 1));
    CHECK(number_after(seen[0], "borrowed_references ") == (name == "w0" ? 2 : 0));
    CHECK(number_after(seen[0], "pending_calls ") == (name == "w0" ? 1 : 0));  // the question itself
  }
  if (kSanitized) WARN("resident memory is not looked at: the sanitizer's own grows");
  std::istringstream before(job.line("resident 200 ")), after(job.line("resident 1000 "));
  for (const std::string name : {"w0", "w1", "w2"}) {
    int64_t early = 0, late = 0;
    REQUIRE((before >> early && after >> late));
    INFO(name << ": " << early << " bytes after 200 steps, " << late << " after 1000");
    if (!kSanitized) CHECK(late - early < (2 << 20));
  }
}

TEST_CASE("a worker killed while training is named by the driver at once and by the launcher", "[process]") {
  const std::string victim = GENERATE("w1", "w2"), during = GENERATE("training", "call");
  auto job = probe({"--mode", "kill", "--victim", victim, "--during", during});
  const int code = job.exit_code();
  INFO(during << ": " << job.output << job.errors);
  CHECK(code == 137);
  CHECK(job.nothing_left());
  CHECK(job.line("noticed after ").find("worker " + victim) != std::string::npos);
  WARN(victim << " killed during " << during << ": noticed after " << noticed_ms(job) << " ms");
  CHECK(noticed_ms(job) < 2000);
  CHECK(job.errors.find("w0: error: ") != std::string::npos);
  CHECK(job.errors.find("troupe run: " + victim + " (pid " + job.line("pid " + victim + " ") +
                        ") was killed by signal 9 (SIGKILL)") != std::string::npos);
  no_socket_left(job);
}

TEST_CASE("when the driver is killed everybody ends", "[process]") {
  auto job = probe({"--mode", "train"});
  job.await("together");
  kill(static_cast<pid_t>(number_after(job.output, "pid w0 ")), SIGKILL);
  CHECK(job.exit_code() == 137);
  CHECK(job.nothing_left());
  CHECK(job.errors.find("troupe run: w0 (pid ") != std::string::npos);
  no_socket_left(job);
}

TEST_CASE("a stopped worker is noticed by its silence and named", "[process]") {
  auto job = probe({"--mode", "stop", "--victim", "w1"});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  CHECK(code == 4);
  CHECK(job.nothing_left());
  CHECK(job.line("noticed after ").find("worker w1 was lost: [net] worker w1") != std::string::npos);
  CHECK(job.line("noticed after ").find("has been silent for 5 s") != std::string::npos);
  WARN("stopped worker: noticed after " << noticed_ms(job) << " ms");
  CHECK(noticed_ms(job) > 4000);  // heartbeats came until then
  CHECK(noticed_ms(job) < 15000);
  no_socket_left(job);
}

TEST_CASE("Ctrl-C and SIGTERM end a training job quietly, with 130 and 143", "[process]") {
  const auto [number, code] = GENERATE(std::pair(SIGINT, 130), std::pair(SIGTERM, 143));
  auto job = probe({"--mode", "train"});
  job.await("together");
  job.signal(number);
  CHECK(job.exit_code() == code);
  CHECK(job.nothing_left());
  CHECK(job.errors == "");
  no_socket_left(job);
}

TEST_CASE("Ctrl-C ends a program that runs alone, with 130", "[process]") {
  Process job({program("probe"), "--mode", "train"});
  job.await("together");
  job.signal(SIGINT);
  CHECK(job.exit_code() == 130);
  CHECK(job.errors == "");
}

TEST_CASE("a program runs alone as it does under the launcher", "[process]") {
  Process alone({program("probe")});
  CHECK(alone.exit_code() == 0);
  CHECK(alone.errors == "");
  CHECK(alone.line("together") == " w0 w1 w2");
  Process two({program("probe")}, {"TROUPE_WORKERS=2"});
  CHECK(two.exit_code() == 0);
  CHECK(two.line("together") == " w0 w1");
  for (const std::string n : {"1", "2", "4"}) {
    Launcher job({"-n", n, program("probe")});
    CHECK(job.exit_code() == 0);
    CHECK(job.errors == "");
    CHECK(job.nothing_left());
    CHECK(Process::count(job.line("together"), " w") == std::stoul(n));
  }
}
