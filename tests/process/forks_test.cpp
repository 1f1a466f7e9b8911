// Children that a program forks, and programs with too little memory: told in words, and nobody stalls.
#include "tests/process/launcher.h"
#include "tests/support/sanitized.h"
#include "tests/support/skip.h"

using namespace troupe::testing;
using Catch::Contains;

namespace {

std::vector<std::string> forks(const std::string& mode, bool alone) {
  if (alone) return {program("forks"), mode};
  return {kTroupeCommand, "run", "-n", "2", program("forks"), mode};
}

}  // namespace

TEST_CASE("a child that fork() makes of a worker is refused in words, and its parent goes on") {
  for (const bool alone : {true, false}) {
    Process job(forks("uses", alone));
    const int code = job.exit_code();
    INFO(job.output << job.errors);
    CHECK(code == 0);
    for (const char* use : {"spawn", "call", "remote", "get", "context", "cluster", "shutdown"}) {
      INFO(use);
      CHECK_THAT(job.output, Contains(std::string("child ") + use + ": invalid: [") &&
                                 Contains("is a child that fork() made while its parent was a worker"));
    }
    CHECK_THAT(job.output,
               Contains("child has 3145728\nchild has 7340032\n") && Contains("parent has 3145728\n"));
    CHECK_THAT(job.output, !Contains("went through") && Contains("child launch: 1") &&
                               Contains("the child's end 0") && Contains("parent 4"));
  }
}

TEST_CASE("a child that goes on as its parent does is ended, and its parent goes on") {
  for (const bool alone : {true, false})
    for (const std::string how : {"returns", "throws"}) {
      Process job(forks(how, alone));
      const int code = job.exit_code();
      INFO(job.output << job.errors);
      CHECK(code == 0);
      CHECK_THAT(job.output, Contains("the child's end 1") && Contains("parent 4"));
      CHECK_THAT(job.errors, Contains("is a child that fork() made"));
      if (how == "throws") CHECK_THAT(job.errors, Contains("the child's own"));
    }
}

TEST_CASE("children that are forked while other threads hold locks end in words, whichever these are") {
  for (const bool alone : {true, false}) {
    Process busy(forks("busy", alone));
    const int code = busy.exit_code();
    INFO(busy.output << busy.errors);
    CHECK(code == 0);
    CHECK_THAT(busy.output, Contains("ended 200 of 200") && Contains("parent 4"));
    CHECK_THAT(busy.errors, Contains("is a child that fork() made"));
    Process locked(forks("locked", alone));  // each lock of such a child in its turn
    CHECK(locked.exit_code() == 0);
    INFO(locked.output << locked.errors);
    int64_t locks = 0, ended = 0;
    const size_t at = locked.output.find("locks ");
    REQUIRE(at != std::string::npos);
    CHECK(std::sscanf(locked.output.c_str() + at, "locks %ld, ended %ld", &locks, &ended) == 2);
    CHECK(locks > 10);
    CHECK(ended == locks);
    CHECK_THAT(locked.errors, Contains("a lock that a thread of its parent held"));
  }
}

TEST_CASE("a child that is forked before the cluster has one of its own") {
  for (const bool alone : {true, false}) {
    Process job(forks("before", alone));
    const int code = job.exit_code();
    INFO(job.output << job.errors);
    CHECK(code == 0);
    CHECK_THAT(job.output, Contains("child 3") && Contains("parent 4"));
  }
}

TEST_CASE("a child that a method forks, and that comes back from it, ends, and the answer is the parent's") {
  for (const bool alone : {true, false}) {
    Process job(forks("methods", alone));
    const int code = job.exit_code();
    INFO(job.output << job.errors);
    CHECK(code == 0);
    for (const std::string where : {"w0", "w1"})
      for (const std::string what :
           {"constructor", "returns", "throws", "blocks", "begins", "goes_on", "calls_back", "tell"})
        CHECK_THAT(job.output, Contains(where + " " + what + " 1\n"));
    CHECK_THAT(job.output, Contains("parent 4"));
    CHECK_THAT(job.errors, Contains("Forker::returns on w1") && Contains("is a child that fork() made"));
    CHECK(job.nothing_left());
  }
}

// Under many limits, since each is met by another allocation or thread.
TEST_CASE("with too little memory or too few threads a program ends with an error in words") {
  if (kSanitized) {
    skip_test("sanitizers need more memory than the limits leave");
    return;
  }
  int ended_well = 0, ended_in_words = 0;
  const auto run = [&](const std::string& limit, const std::string& command) {
    Process job({"/bin/sh", "-c", limit + "; exec " + command});
    const int code = job.exit_code();
    INFO(limit << "\n" << code << "\n" << job.output << job.errors);
    CHECK_THAT(job.errors, !Contains("terminate called") && !Contains("bad_alloc"));
    CHECK(code < 128);  // no signal
    if (code == 0) {
      ++ended_well;
      CHECK_THAT(job.output, Contains("parent 4"));
    } else {
      ++ended_in_words;
      CHECK_THAT(job.errors, Contains("error"));
    }
  };
  const std::string forks = program("forks");
  for (int kib = 60'000; kib <= 600'000; kib += kib < 160'000 ? 2'000 : 12'000) {
    const std::string limit = "ulimit -v " + std::to_string(kib);
    // On some systems the shared libraries' initializers abort where they find no memory, before any main().
    if (Process({"/bin/sh", "-c", limit + "; exec " + forks + " nothing"}).exit_code() == 0)
      run(limit, forks + " never");
  }
  CHECK(ended_in_words > 5);
  CHECK(ended_well > 0);
}

// A worker that cannot hold a message ends; nobody waits for it until a timeout.
TEST_CASE("with too little memory the workers of a job end with an error in words, and soon") {
  if (kSanitized) {
    skip_test("sanitizers need more memory than the limits leave");
    return;
  }
  for (int kib = 180'000; kib <= 420'000; kib += 10'000) {
    Process job({"/bin/sh", "-c",
                 "ulimit -v " + std::to_string(kib) + "; exec " + kTroupeCommand + " run -n 3 " +
                     program("forks") + " never"});
    const int code = job.exit_code();
    INFO(kib << " KiB\n" << code << "\n" << job.output << job.errors);
    CHECK(code < 128);
    CHECK((code == 0 || job.errors.find("error") != std::string::npos));
    for (const char* never :
         {"terminate called", "libgcc_s", "bad_alloc", "did not join", "have not joined", "gave no answer"})
      CHECK_THAT(job.errors, !Contains(never));
    CHECK(job.nothing_left());
  }
}
