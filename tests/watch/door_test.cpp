// The door of a process: what it answers whom.
#include "troupe/watch/watch_door.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/base/log.h"
#include "core/base/seed_stream.h"
#include "tests/support/skip.h"
#include "tests/support/two_workers.h"

using namespace troupe;
using namespace troupe::internal;
using watch::Door;
using watch::WatchDoor;

namespace {

Door door_of(const std::string& job) {
  for (const Door& door : watch::doors_here())
    if (door.job == job && door.pid == getpid()) return door;
  FAIL("no door of job " << job);
  return {};
}

// What comes until the other end closes; sends `question` first.
std::string said(const Door& door, const std::string& question) {
  const Descriptor connection = watch::knock(door);
  const int fd = connection.get();
  REQUIRE(connection);
  (void)!send(fd, question.data(), question.size(), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  std::string all;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    poll(&ready, 1, -1);
    char bytes[4096];
    const ssize_t count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count <= 0) break;
    all.append(bytes, static_cast<size_t>(count));
  }
  return all;
}

}  // namespace

TEST_CASE("names of doors are read as they are written, and other sockets are none") {
  const Door door{1000, 4711, 2, "slurm-12.0"};
  CHECK(door.name() == "troupe-watch-1000-4711-2-slurm-12.0");
  const auto read = Door::from(door.name());
  REQUIRE(read.has_value());
  CHECK(read->user == 1000);
  CHECK(read->pid == 4711);
  CHECK(read->rank == 2);
  CHECK(read->job == "slurm-12.0");
  CHECK(Door{0, 1, 0, "tcp:[::1]:7/x y"}.name() == "troupe-watch-0-1-0-tcp____1__7_x_y");
  CHECK(Door{0, 1, 0, std::string(500, 'j')}.name().size() < 107);
  for (const char* other :
       {"", "troupe-watch", "troupe-watch-", "troupe-watch-1", "troupe-watch-1-2-3", "troupe-watch-a-2-3-j",
        "troupe-watch-1--3-j", "troupe-1000-x", "troupe-watch-99999999999999-2-3-j"})
    CHECK_FALSE(Door::from(other).has_value());
}

TEST_CASE("a door answers for all workers, says what can be asked, and goes with its process's work") {
  testing::TwoWorkers both(actors::TypeRegistry{});
  auto door = WatchDoor::open(both.worker(0), "a job / of tests");
  REQUIRE(door);
  const Door at = door_of("a_job___of_tests");
  const auto report = nlohmann::json::parse(said(at, "report\n"));
  CHECK(report.at("workers").size() == 2);
  CHECK(nlohmann::json::parse(said(at, "waits\n")).at("waits").empty());
  CHECK(nlohmann::json::parse(said(at, "open sesame\n")).at("error") ==
        "'open' is no question; expected one of: logs, report, waits");
  log::set_sink([](log::Level, const std::string&) {});
  log::warning("[test] for who watches");
  log::set_sink(nullptr);
  const auto logs = nlohmann::json::parse(said(at, "logs\n"));
  CHECK(logs.at("lines").back().at("text") == "warning: [test] for who watches");
  CHECK(nlohmann::json::parse(said(at, "logs " + std::to_string(logs.at("next").get<int>()) + "\n"))
            .at("lines")
            .empty());
  CHECK(nlohmann::json::parse(said(at, "logs -7 x\n")).at("lines").size() == logs.at("lines").size());
  door.reset();
  CHECK_FALSE(watch::knock(at));
}

TEST_CASE("10,000 malformed requests leave a door as it was") {
  testing::TwoWorkers both(actors::TypeRegistry{});
  const auto door = WatchDoor::open(both.worker(0), "malformed");
  const Door at = door_of("malformed");
  SeedStream random(5);
  for (int i = 0; i < 10'000; ++i) {
    std::string question;
    if (i % 3 == 0) question = i % 2 ? "report" : "logs ";
    for (uint64_t n = random.next() % (i % 50 ? 40 : 2000); n > 0; --n)
      question += static_cast<char>(random.next());
    const Descriptor connection = watch::knock(at);
    const int fd = connection.get();
    REQUIRE(fd >= 0);
    (void)!send(fd, question.data(), question.size(), MSG_NOSIGNAL);
    if (i % 4 == 0) (void)!send(fd, "\n", 1, MSG_NOSIGNAL);
    if (i % 5) shutdown(fd, SHUT_WR);
    if (i % 7 == 0 && i % 5) {
      char byte;
      pollfd ready{fd, POLLIN, 0};
      poll(&ready, 1, -1);
      (void)!recv(fd, &byte, 1, MSG_DONTWAIT);
    }
  }
  // Those of the last moment may still be at the door.
  for (;;) {
    const auto answer = nlohmann::json::parse(said(at, "report\n"));
    if (answer.contains("error")) continue;
    CHECK(answer.at("workers").size() == 2);
    break;
  }
}

TEST_CASE("another user gets nothing") {
  if (geteuid() != 0) return testing::skip_test("only root can be somebody else");
  testing::TwoWorkers both(actors::TypeRegistry{});
  const auto door = WatchDoor::open(both.worker(0), "of-one-user");
  const Door at = door_of("of-one-user");
  // A process that has not the threads and locks of this one: exec is the shell's.
  int result[2];
  REQUIRE(pipe(result) == 0);
  const pid_t child = fork();
  if (child == 0) {
    bool nothing = setuid(65534) == 0;
    const Descriptor connection = watch::knock(at);
    const int fd = connection.get();
    (void)!send(fd, "report\n", 7, MSG_NOSIGNAL);
    char byte;
    ssize_t count;
    do {
      pollfd ready{fd, POLLIN, 0};
      poll(&ready, 1, -1);
      count = recv(fd, &byte, 1, MSG_DONTWAIT);
    } while (count < 0 && errno == EAGAIN);
    nothing = nothing && fd >= 0 && count <= 0;
    (void)!write(result[1], nothing ? "0" : "1", 1);
    _exit(0);
  }
  char code = '2';
  REQUIRE(read(result[0], &code, 1) == 1);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  close(result[0]), close(result[1]);
  CHECK(code == '0');
}

TEST_CASE("a program that wants no door has none") {
  testing::TwoWorkers both(actors::TypeRegistry{});
  REQUIRE(setenv("TROUPE_WATCH", "0", 1) == 0);
  CHECK_FALSE(WatchDoor::open(both.worker(0), "unwatched"));
  REQUIRE(unsetenv("TROUPE_WATCH") == 0);
}
