// Jobs of real processes, as `troupe ps` shows them.
#include <fstream>

#include "tests/watch/watched_job.h"

using namespace troupe::testing;

TEST_CASE("a job that trains is listed with its workers, their steps and the loss") {
  WatchedJob job("train");
  const auto report = nlohmann::json::parse(troupe_says({"ps", "--json", job.job}));
  CHECK(report.at("program") == "planted");
  REQUIRE(report.at("workers").size() == 3);
  const auto& driver = report.at("workers")[0];
  CHECK(driver.at("steps") >= 10);
  CHECK(driver.at("steps_per_second") > 0);
  CHECK(driver.at("loss").is_number());
  CHECK(driver.at("memory") > 1'000'000);
  const auto& half = report.at("workers")[1].at("actors").at(0);
  CHECK(half.at("type") == "Half");
  CHECK(half.at("calls") >= 10);
  CHECK(half.at("busy") > 0);
  bool forward = false;
  for (const auto& method : report.at("workers")[1].at("methods"))
    forward |= method.at("method") == "Half::forward";
  CHECK(forward);
  const std::string shown = troupe_says({"ps", "--actors", job.job});
  INFO(shown);
  CHECK(shown.starts_with("job " + job.job + ": planted, 3 workers, "));
  CHECK(shown.find("Half#0:") != std::string::npos);
}

TEST_CASE("the system's ps tells the workers of a job apart") {
  WatchedJob job("train");
  std::string titles;
  const auto report = nlohmann::json::parse(troupe_says({"ps", "--json", job.job}));
  for (const auto& w : report.at("workers")) {
    std::ifstream file("/proc/" + std::to_string(w.at("pid").get<int>()) + "/cmdline");
    for (char c; file.get(c);) titles += c ? c : ' ';
  }
  for (const char* who : {"w0 of 3", "w1 of 3", "w2 of 3"})
    CHECK(titles.find(std::string("planted train [") + who + ", job " + job.job + "]") != std::string::npos);
}

TEST_CASE("a job without a door is not there, and says so") {
  Launcher run({"-n", "2", program("planted"), "stopped"}, {"TROUPE_WATCH=0"});
  run.await("job ");
  Process command({kTroupeCommand, "ps", "planted-nowhere"});
  CHECK(command.exit_code() == 3);
  CHECK(command.errors.find(
            "no job of yours runs on this host whose name or program begins with 'planted-nowhere'") !=
        std::string::npos);
}
