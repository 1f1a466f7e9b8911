// Variables of launchers, tokens, and what goes wrong while joining.
#include "tests/process/by_hand.h"

using namespace troupe::testing;

TEST_CASE("the variables of torchrun, Slurm, Open MPI and MPICH make a cluster over TCP", "[process]") {
  const auto [rank, world] = GENERATE(std::pair<std::string, std::string>("RANK=", "WORLD_SIZE="),
                                      std::pair("SLURM_PROCID=", "SLURM_STEP_NUM_TASKS="),
                                      std::pair("OMPI_COMM_WORLD_RANK=", "OMPI_COMM_WORLD_SIZE="),
                                      std::pair("PMI_RANK=", "PMI_SIZE="));
  Site site;
  std::deque<Process> workers;
  for (int i = 0; i < 3; ++i) {
    auto variables = site.of(i, 3);
    variables[0] = rank + std::to_string(i), variables[1] = world + "3";
    workers.emplace_back(std::vector<std::string>{program("probe")}, variables);
  }
  for (auto& w : workers) {
    ends_well(w);
    CHECK(w.errors == "");
  }
  CHECK(workers[0].line("together") == " w0 w1 w2");
  CHECK(workers[0].line("address ") == "tcp:127.0.0.1:" + std::to_string(site.port));
}

TEST_CASE("where torchrun's agent has MASTER_PORT, worker 0 has the port beside it", "[process]") {
  std::map<std::string, std::string> variables = {{"RANK", "1"},
                                                  {"WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "host0"},
                                                  {"MASTER_PORT", "29500"},
                                                  {"TROUPE_TOKEN", kToken}};
  const auto read = [&] {
    return troupe::LaunchEnvironment::read([&](const std::string& name) {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    });
  };
  const auto expect = [&](const std::string& address, bool noted) {
    const auto e = read();
    REQUIRE(e);
    CHECK(e->address == address);
    CHECK(e->address_note.empty() != noted);
    if (noted)
      CHECK_THAT(e->address_note, Catch::Contains("MASTER_PORT") && Catch::Contains("TROUPE_ADDRESS="));
  };
  expect("tcp:host0:29500", false);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  expect("tcp:host0:29500", false);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  expect("tcp:host0:29501", true);
  variables["MASTER_PORT"] = "65535";
  expect("tcp:host0:65534", true);
  variables["MASTER_ADDR"] = "::1";
  expect("tcp:[::1]:65534", true);
  for (const char* wrong : {"0", "65536", "-1", "29500x", "port"}) {
    variables["MASTER_PORT"] = wrong;
    CHECK(text_of(read) ==
          "[launch] MASTER_PORT is '" + std::string(wrong) + "'; expected a port, 1 to 65535");
  }
  variables["TROUPE_ADDRESS"] = "tcp:host0:29600";
  expect("tcp:host0:29600", false);
}

TEST_CASE("programs meet beside the port that torchrun's agent has, or say which variable sets another",
          "[process]") {
  Site site;
  site.port = free_ports();
  const auto variables = [&](int rank) {
    return with(site.of(rank, 2), "TORCHELASTIC_USE_AGENT_STORE=True");
  };
  Process driver({program("probe")}, variables(0)), worker({program("probe")}, variables(1));
  ends_well(worker);
  ends_well(driver);
  CHECK(driver.line("address ") == "tcp:127.0.0.1:" + std::to_string(site.port + 1));

  const Port taken;
  REQUIRE(listen(taken.fd, 1) == 0);
  site.port = taken.number - 1;
  refused(variables(0), 3,
          {"tcp:127.0.0.1:" + std::to_string(taken.number), "in use",
           "MASTER_PORT (" + std::to_string(site.port), "TROUPE_ADDRESS=tcp:127.0.0.1:PORT"});
}

TEST_CASE("torchrun starts a program", "[process]") {
  const std::string torchrun = installed("torchrun");
  if (torchrun.empty()) return skip_test("there is no torchrun that works (Debian's python3-torch has one)");
  Site site;
  site.port = free_ports();
  // torch 1.13 cannot read its own default of the two flags under Python 3.11: output that goes nowhere else.
  Process job({torchrun, "--nproc_per_node=3", "--master_addr=127.0.0.1",
               "--master_port=" + std::to_string(site.port), "--redirects=9:1", "--tee=9:1", "--no_python",
               program("probe")},
              {"HOME=" + site.folder.path.string()});  // where it makes its secret
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  CHECK(code == 0);
  CHECK(job.line("together") == " w0 w1 w2");
  CHECK(job.line("address ") == "tcp:127.0.0.1:" + std::to_string(site.port + 1));
}

namespace {

// One variable at a time, over those of a cluster that could meet.
std::string reading(const std::string& name, const std::string& value,
                    std::map<std::string, std::string> others) {
  others[name] = value;
  return text_of([&] {
    (void)troupe::LaunchEnvironment::read([&](const std::string& wanted) {
      const auto at = others.find(wanted);
      return at == others.end() || at->second.empty() ? std::nullopt : std::optional(at->second);
    });
  });
}

}  // namespace

TEST_CASE("the error of a variable names it and what it holds", "[process]") {
  const std::map<std::string, std::string> good = {{"RANK", "0"},
                                                   {"WORLD_SIZE", "3"},
                                                   {"MASTER_ADDR", "host0"},
                                                   {"MASTER_PORT", "29500"},
                                                   {"TROUPE_TOKEN", kToken}};
  const std::string huge = "99999999999999999999", number = "expected a whole number, 0 to 1048575",
                    host = "expected a host", port = "expected a port, 1 to 65535", flag = "expected 0 or 1",
                    seconds = "expected seconds, above 0 and up to 1000000";
  const auto refuses = [&](const std::string& name, const std::vector<std::string>& values,
                           const std::string& expected) {
    for (const std::string& value : values) {
      const std::string said = reading(name, value, good);
      INFO(name << "=" << value << ": " << said);
      CHECK(said.starts_with("[launch] " + name + " is '" + value + "'; "));
      CHECK(said.find(expected) != std::string::npos);
    }
  };
  refuses("RANK", {"-1", "one", "0x1", "1.5", " 1", huge}, number);
  refuses("WORLD_SIZE", {"0", "-3", "three", huge}, "expected a whole number, 1 to 1048576");
  refuses("MASTER_PORT", {"0", "-1", "65536", "http", "29500 ", huge}, port);
  refuses("MASTER_ADDR", {"tcp://host0", "host0:29500", "a b", "[::1", "::g", "[host0]"}, host);
  refuses("TROUPE_BIND", {"10.0.0.2:29500", "tcp:10.0.0.2", "::1:80:x", "[10.0.0.2]", "a b", "10.0.0.0/8"},
          host);
  refuses("TROUPE_ADDRESS", {"host0", "host0:29500", "tcp:host0", "tcp:host0:x", "unix:x", "http://x"},
          "expected unix:@name, unix:/path or tcp:host:port");
  refuses("TROUPE_JOIN_TIMEOUT", {"0", "-1", "soon", "1e9", "nan", "inf", huge}, seconds);
  for (const char* name : {"TROUPE_POLLING", "TROUPE_CALLERS_READ", "TROUPE_SHARED_MEMORY"})
    refuses(name, {"2", "-1", "yes", "true", huge}, flag);
  refuses("TROUPE_TLS", {"2", "-1", "yes", "required", "Require"}, "expected 0, 1 or require");
  CHECK(reading("TROUPE_TOKEN", "short", good) ==
        "[launch] TROUPE_TOKEN has 5 bytes; at least 16 are needed");
  auto file = good;
  file.erase("TROUPE_TOKEN");
  CHECK(reading("TROUPE_TOKEN_FILE", "/no/such", file)
            .starts_with("[launch] TROUPE_TOKEN_FILE: [token] /no/such: "));
  CHECK(reading("WORLD_SIZE", "", good) ==
        "[launch] RANK is set but WORLD_SIZE is not, or is empty: set both, or neither to run alone");
  for (const char* name :
       {"TROUPE_BIND", "TROUPE_JOIN_TIMEOUT", "TROUPE_POLLING", "TROUPE_ADDRESS", "TROUPE_TLS"})
    CHECK(reading(name, "", good) == "no error");  // as if it were not set
  CHECK(reading("TROUPE_BIND", "::1", good) == "no error");
  CHECK(reading("TROUPE_BIND", "[::1]", good) == "no error");
  CHECK(reading("MASTER_ADDR", "[::1]", good) == "no error");
}

TEST_CASE("a level of the log that there is not is told at once, and an empty variable is none",
          "[process]") {
  Process p(
      {program("endings"), "--mode", "alone"},
      {"TROUPE_LOG=loud", "TROUPE_TILES=", "TROUPE_WORKERS=", "TROUPE_NUM_THREADS=", "TROUPE_CPU_LEVEL="});
  CHECK(p.exit_code() == 0);
  CHECK(p.output == "workers 3\n");
  CHECK(p.errors ==
        "troupe warning: [log] TROUPE_LOG is \"loud\", expected debug, info, warning, error or off\n");
}

TEST_CASE("workers listen on an address of IPv6, or say that TROUPE_BIND is none of theirs", "[process]") {
  const Site site;
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 here{};
  here.sin6_family = AF_INET6;
  here.sin6_addr = in6addr_loopback;
  const bool has_v6 = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&here), sizeof here) == 0;
  close(fd);
  if (has_v6) {
    Process driver({program("probe")}, site.of(0, 2)),
        worker({program("probe")}, with(site.of(1, 2), "TROUPE_BIND=::1"));
    ends_well(worker);
    ends_well(driver);
  }
  refused(with(site.of(1, 2), "TROUPE_BIND=192.0.2.1"), 3,
          {"TROUPE_BIND is '192.0.2.1'; expected an address of this host", "[net]"});
}

TEST_CASE("half-set and impossible variables end a program with 2, naming them", "[process]") {
  const Site site;
  refused({"RANK=1"}, 2, {"RANK", "WORLD_SIZE"});
  refused(site.of(3, 3), 2, {"RANK=3", "WORLD_SIZE=3"});
  refused({"RANK=one", "WORLD_SIZE=3"}, 2, {"RANK is 'one'"});
  refused({"RANK=-1", "WORLD_SIZE=3"}, 2, {"RANK is '-1'"});
  refused({"RANK=0", "WORLD_SIZE=3"}, 2, {"TROUPE_ADDRESS", "MASTER_ADDR"});
  refused({"RANK=0", "WORLD_SIZE=3", "TROUPE_ADDRESS=unix:@x", "HOME="}, 2, {"no HOME", "TROUPE_TOKEN_FILE"});
  refused({"RANK=0", "WORLD_SIZE=3", "TROUPE_ADDRESS=unix:@x", "TROUPE_TOKEN=short"}, 2, {"5 bytes", "16"});
  refused(with(site.of(0, 3), "TROUPE_JOIN_TIMEOUT=soon"), 2, {"TROUPE_JOIN_TIMEOUT is 'soon'"});
  refused(with(site.of(0, 3), "TROUPE_POLLING=often"), 2, {"TROUPE_POLLING is 'often'"});
  refused({"TROUPE_CALLERS_READ=maybe"}, 2, {"TROUPE_CALLERS_READ is 'maybe'"});
  refused({"TROUPE_WORKERS=many"}, 2, {"TROUPE_WORKERS is 'many'"});
  refused({"TROUPE_WORKERS=0"}, 2, {"TROUPE_WORKERS"});
  refused({"TROUPE_NUM_THREADS=many"}, 2, {"TROUPE_NUM_THREADS is \"many\""});
  refused({"TROUPE_NUM_THREADS=-1"}, 2, {"TROUPE_NUM_THREADS is -1"});
  refused({"TROUPE_LEAK_CHECK=often"}, 2, {"TROUPE_LEAK_CHECK is 'often'; expected off, warn or error"});
  refused({"TROUPE_TILES=no"}, 2, {"TROUPE_TILES is \"no\", expected 0 or 1"});
  refused({"TROUPE_CPU_LEVEL=sse9"}, 2,
          {"TROUPE_CPU_LEVEL is \"sse9\", expected a level of this machine: baseline"});
}

TEST_CASE("the command names the levels of this machine, and refuses others", "[process]") {
  Process version({kTroupeCommand, "--version"}, {"TROUPE_CPU_LEVEL=baseline"});
  CHECK(version.exit_code() == 0);
  CHECK(version.output.find("\ncpu level: baseline of baseline") != std::string::npos);
  Process wrong({kTroupeCommand, "--version"}, {"TROUPE_CPU_LEVEL=sse9"});
  CHECK(wrong.exit_code() == 2);
  CHECK(wrong.output.empty());
  CHECK(wrong.errors.find("[cpu] TROUPE_CPU_LEVEL is \"sse9\", expected a level of this machine: baseline") !=
        std::string::npos);
}

TEST_CASE("a token file that others can read, or that is not there, is refused by name", "[process]") {
  Site site;
  site.token = site.folder.file("open", kToken, 0644);
  refused(site.of(0, 2), 2, {site.token, "0644", "0600"});
  site.token = (site.folder.path / "none").string();
  refused(site.of(1, 2), 2, {site.token, "No such file"});
}

TEST_CASE("a worker with another token is refused, and the cluster forms when the right one comes",
          "[process]") {
  Site site;
  Process driver({program("probe")}, site.of(0, 2));
  Site other;
  other.port = site.port, other.token = other.folder.file("token", kOtherToken);
  refused(other.of(1, 2), 3, {"token", "tcp:127.0.0.1:" + std::to_string(site.port)});
  auto worker = start(site.of(1, 2));
  ends_well(worker);
  ends_well(driver);
  CHECK(Process::count(driver.errors, "\n") == 1);
  CHECK(driver.errors.find("refused a connection") != std::string::npos);
}

TEST_CASE("a worker that was told of another number of workers is refused, and the right one comes",
          "[process]") {
  Site site;
  Process driver({program("probe")}, site.of(0, 2));
  Process wrong = start(site.of(1, 3));
  CHECK(wrong.exit_code() == 3);
  driver.await_error("w1 was started for a cluster of 3 workers, this one has 2");
  CHECK(wrong.errors.find("w1 was started for a cluster of 3 workers, this one has 2") != std::string::npos);
  auto worker = start(site.of(1, 2));
  ends_well(worker);
  ends_well(driver);
}

TEST_CASE("a worker of another job is told so where two jobs have one address and one secret", "[process]") {
  Site site;
  Process driver({program("probe")}, with(site.of(0, 2), "TROUPE_JOB=first"));
  await_driver(site);
  refused(with(site.of(1, 2), "TROUPE_JOB=second"), 3,
          {"tcp:127.0.0.1:" + std::to_string(site.port) + " belongs to another job, which has the same token",
           "give each job an address of its own"});
  driver.await_error("belongs to another job");
  auto worker = start(site.of(1, 2));  // one that knows of no job
  ends_well(worker);
  ends_well(driver);
}

TEST_CASE("a worker of torchrun's start before this one is of another job, where one agent counts them",
          "[process]") {
  std::map<std::string, std::string> variables = {{"RANK", "1"},
                                                  {"WORLD_SIZE", "4"},
                                                  {"LOCAL_WORLD_SIZE", "4"},
                                                  {"MASTER_ADDR", "host0"},
                                                  {"MASTER_PORT", "29500"},
                                                  {"TORCHELASTIC_RUN_ID", "none"},
                                                  {"TROUPE_TOKEN", kToken}};
  const auto job = [&] {
    const auto e = troupe::LaunchEnvironment::read([&](const std::string& name) {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    });
    return e ? e->job : "nothing";
  };
  CHECK(job() == "torchrun-none.0");
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  CHECK(job() == "torchrun-none.1");
  variables["LOCAL_WORLD_SIZE"] = "2";  // agents that restart what others have lost count nothing
  CHECK(job() == "torchrun-none");
  variables["TROUPE_JOB"] = "mine";
  CHECK(job() == "mine");
}

TEST_CASE("of two processes with one rank the second is refused, and the cluster forms with the first",
          "[process]") {
  Site site;
  Process driver({program("probe")}, site.of(0, 3)), a({program("probe")}, site.of(1, 3)),
      b({program("probe")}, site.of(1, 3));
  Process& second = Process::first_to_end(a, b);
  Process& first = &second == &a ? b : a;
  CHECK(second.exit_code() == 3);
  INFO(second.errors);
  CHECK(second.errors.find("there is a w1 already: is its rank used twice?") != std::string::npos);
  auto last = start(site.of(2, 3));
  ends_well(first);
  ends_well(last);
  ends_well(driver);
  CHECK(driver.line("together") == " w0 w1 w2");
  CHECK(Process::count(driver.errors, "\n") == 1);
}

TEST_CASE("random bytes at the driver's port do no harm while workers join", "[process]") {
  Site site;
  Process driver({program("probe")}, site.of(0, 2));
  uint64_t state = 42;
  for (int n = 0; n < 20; ++n) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in a = loopback(site.port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) {
      close(fd), --n, usleep(1000);  // the driver does not listen yet
      continue;
    }
    std::string bytes;
    for (int i = 0; i < 37 * n; ++i)
      bytes += static_cast<char>((state = state * 6364136223846793005u + 1) >> 56);
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);  // the driver may have hung up by then
    close(fd);
  }
  auto worker = start(site.of(1, 2));
  ends_well(worker);
  ends_well(driver);
  CHECK(driver.line("together") == " w0 w1");
}

TEST_CASE("a driver whose port is taken ends with 3, naming the address", "[process]") {
  Port taken;
  REQUIRE(listen(taken.fd, 1) == 0);
  Site site;
  site.port = taken.number;
  refused(
      site.of(0, 2), 3,
      {"tcp:127.0.0.1:" + std::to_string(taken.number), "in use",
       "Another job or program has that address: give this one another, by MASTER_PORT or TROUPE_ADDRESS"});
}

TEST_CASE("joining is bounded: a worker names the address, a driver the missing ranks", "[process]") {
  Site site;
  refused(with(site.of(1, 2), "TROUPE_JOIN_TIMEOUT=0.3"), 3,
          {"nobody answers at tcp:127.0.0.1:" + std::to_string(site.port)});
  refused(with(site.of(0, 3), "TROUPE_JOIN_TIMEOUT=0.3"), 3, {"have not joined: w1, w2"});
}

TEST_CASE("a worker that never came is named by all that waited for it, and nobody else is", "[process]") {
  Site site;
  Process driver({program("probe")}, with(site.of(0, 4), "TROUPE_JOIN_TIMEOUT=3"));
  await_driver(site);
  // Their time begins before that of the driver would end, and ends before it.
  Process w2({program("probe")}, with(site.of(2, 4), "TROUPE_JOIN_TIMEOUT=2")),
      w3({program("probe")}, with(site.of(3, 4), "TROUPE_JOIN_TIMEOUT=2"));
  for (Process* p : {&driver, &w2, &w3}) {
    CHECK(p->exit_code() == 3);
    INFO(p->errors);
    CHECK(p->errors.find("[cluster] after 3 s these workers have not joined: w1\n") != std::string::npos);
    CHECK(p->errors.find("lost") == std::string::npos);
  }
}

TEST_CASE("a host that has no address is asked for as long as joining may take, and no longer", "[process]") {
  Site site;
  auto variables = with(site.of(1, 2), "TROUPE_JOIN_TIMEOUT=0.3");
  variables[2] = "MASTER_ADDR=host.invalid";
  refused(variables, 3,
          {"w1 has not reached worker 0 within 0.3 s: [net] nobody answers at tcp:host.invalid:"});
}

TEST_CASE("Ctrl-C ends a driver that waits for workers", "[process]") {
  Site site;
  Process driver({program("probe")}, site.of(0, 2));
  await_driver(site);
  driver.signal(SIGINT);
  CHECK(driver.exit_code() == 130);
  CHECK(driver.errors.find("error") == std::string::npos);
}
