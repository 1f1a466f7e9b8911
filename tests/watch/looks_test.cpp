// The other looks at a job of real processes: a page of top, a trace, metrics.
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/support/folder.h"
#include "tests/watch/watched_job.h"

using namespace troupe::testing;

TEST_CASE("a page of top has the workers of a job that trains, and fits 80 columns") {
  WatchedJob job("train");
  const std::string page = troupe_says({"top", "--once", "--seconds", "0.2", job.job});
  INFO(page);
  CHECK(page.starts_with("planted (" + job.job.substr(0, 8) + "), 3 workers  "));
  for (const char* part : {" steps  ", "loss ", "\nw0 ", "\nw1 ", "\nw2 "})
    CHECK(page.find(part) != std::string::npos);
  for (size_t at = 0; at < page.size();) {
    const size_t end = page.find('\n', at);
    CHECK(end - at <= 80);
    at = end + 1;
  }
}

TEST_CASE("a trace of a job that is stuck has the calls that had begun before it") {
  WatchedJob job("relay");
  (void)job.first_line("has been running Sleeper::nap for", 23);
  const auto trace = nlohmann::json::parse(troupe_says({"trace", "--seconds", "0.1", "--json", job.job}));
  int naps = 0, handled = 0;
  double longest = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const std::string name = event.at("name");
    naps += name.starts_with("call Sleeper::nap");
    handled += name.starts_with("handle Sleeper::nap");
    longest = std::max(longest, event.at("dur").get<double>());
  }
  CHECK(naps == 2);
  CHECK(handled == 2);
  CHECK(longest > 100'000);  // microseconds: more than the trace took
}

TEST_CASE("a method that takes longer on one worker than on the other is named by top") {
  WatchedJob job("slow");
  for (;;) {  // until the machine lets it show
    const std::string page = troupe_says({"top", "--once", "--seconds", "0.3", "--columns", "200", job.job});
    UNSCOPED_INFO(page);
    if (page.find("\n! Mill::grind is slower on w2: ") != std::string::npos) break;
  }
}

TEST_CASE("a worker that is held to a tenth of a core is named by top") {
  WatchedJob job("equal");
  const pid_t pid = std::stoi(job.run.line("pid "));
  std::atomic<bool> over{false};
  std::thread holder([&] {
    while (!over) {
      kill(pid, SIGSTOP);
      poll(nullptr, 0, 45);
      kill(pid, SIGCONT);
      poll(nullptr, 0, 5);
    }
  });
  for (;;) {
    const std::string page = troupe_says({"top", "--once", "--seconds", "0.5", "--columns", "200", job.job});
    UNSCOPED_INFO(page);
    if (page.find("\n! Mill::grind is slower on w2: ") != std::string::npos) break;
  }
  over = true;
  holder.join();
}

TEST_CASE("a trace leaves out a worker that is stopped") {
  WatchedJob job("stopped");
  const pid_t pid = std::stoi(job.run.line("pid "));
  REQUIRE(kill(pid, SIGSTOP) == 0);
  const auto trace = nlohmann::json::parse(troupe_says({"trace", "--seconds", "0.1", "--json", job.job}));
  bool called = false, handled = false;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string name = event.value("name", "");
    called |= name.starts_with("call Sleeper::nap w0 -> w2");
    handled |= name.starts_with("handle ");
  }
  CHECK(called);
  CHECK_FALSE(handled);
  REQUIRE(kill(pid, SIGCONT) == 0);
}

TEST_CASE("a trace of some steps says where the time goes, by worker and method") {
  const Folder folder;
  WatchedJob job("train");
  const std::string file = (folder.path / "trace.json").string();
  const std::string said = troupe_says({"trace", "--steps", "5", "-o", file, job.job});
  INFO(said);
  for (const char* part :
       {"where ", "worker", "compute", "queueing", "transfer", "waiting", "idle", "Half::forward", "\nw2 "})
    CHECK(said.find(part) != std::string::npos);
  std::ifstream written(file);
  const auto trace = nlohmann::json::parse(written);
  CHECK(trace.at("traceEvents").size() > 20);
}

TEST_CASE("metrics are Prometheus's text, with what each is, and promtool agrees where it is") {
  WatchedJob job("train");
  const std::string text = troupe_says({"metrics", job.job});
  for (const char* part : {"# TYPE troupe_steps_total counter\n", "# HELP troupe_loss ", "troupe_up{job=\"",
                           "method=\"Half::forward\"", "# TYPE troupe_process_cpu_seconds_total counter\n",
                           "# TYPE troupe_process_memory_bytes gauge\n"})
    CHECK(text.find(part) != std::string::npos);
  if (std::system("promtool --version >/dev/null 2>&1") != 0) return;
  const Folder folder;
  const std::string file = folder.file("metrics", text);
  CHECK(std::system(("promtool check metrics < " + file + " >&2").c_str()) == 0);
}

TEST_CASE("what cannot be asked is refused in words") {
  WatchedJob job("stopped");
  for (const auto& [arguments, code, error] :
       std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{"trace", "--seconds", "61", job.job}, 2, "61"},
           {{"waits", job.job, "--json"}, 2, "flags come before the job's name"},
           {{"waits", job.job, "other"}, 2, "one job at a time, not 2"},
           {{"top", "nobody-has-this"},
            3,
            "no job of yours runs on this host whose name or program begins with 'nobody-has-this'"}}) {
    std::vector<std::string> command = arguments;
    command.insert(command.begin(), kTroupeCommand);
    Process refused(command);
    CHECK(refused.exit_code() == code);
    INFO(refused.errors);
    CHECK(refused.errors.find(error) != std::string::npos);
  }
}
