// What launchers offer, and programs that they start.
#include "tests/process/by_hand.h"

using namespace troupe::testing;

namespace {

// What `endings --mode alone` says, which is how many workers there are: "workers 3".
void runs_alone(const Variables& variables, int workers, const std::string& warning = "") {
  Process p({program("endings"), "--mode", "alone"}, variables);
  const int code = p.exit_code();
  INFO(p.output << p.errors);
  CHECK(code == 0);
  CHECK(p.output == "workers " + std::to_string(workers) + "\n");
  CHECK(Process::count(p.errors, "\n") == (warning.empty() ? 0 : 1));
  CHECK(p.errors.find(warning) != std::string::npos);
}

}  // namespace

TEST_CASE("one process of a launcher runs alone, without an address or a secret", "[process]") {
  for (const auto& [rank, world] :
       std::vector<std::pair<std::string, std::string>>{{"RANK", "WORLD_SIZE"},
                                                        {"JOB_COMPLETION_INDEX", "WORLD_SIZE"},
                                                        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                                        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                        {"PMI_RANK", "PMI_SIZE"}})
    runs_alone({rank + "=0", world + "=1", "HOME="}, 3);
  // With a variable of ours, a cluster of one is meant, which others may join.
  runs_alone({"TROUPE_RANK=0", "TROUPE_WORLD_SIZE=1", "HOME="}, 1);
  runs_alone(
      {"RANK=0", "WORLD_SIZE=1", "TROUPE_ADDRESS=unix:@troupe-one-" + std::to_string(getpid()), "HOME="}, 1);
}

TEST_CASE("a program that runs alone where a cluster may have been meant says so in one line", "[process]") {
  runs_alone({"SLURM_NTASKS=3"}, 3,
             "runs alone: Slurm has room for 3 tasks, and srun starts one worker in each");
  runs_alone({"SLURM_NTASKS=3", "SLURM_PROCID=0", "SLURM_JOB_ID=7"}, 3, "runs alone: Slurm");
  runs_alone({"SLURM_NTASKS=1", "SLURM_PROCID=0"}, 3);
  runs_alone({"SLURM_NTASKS=3", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}, 3);
  runs_alone({"JOB_COMPLETION_INDEX=2"}, 3, "runs alone: this is pod 2 of an indexed Job");
}

namespace {

// What is read from these variables alone, and an empty home folder.
struct Reading {
  explicit Reading(std::map<std::string, std::string> variables) {
    variables.emplace("HOME", home.path.string());
    const auto lookup = [&](const std::string& name) {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    };
    error = text_of([&] { found = troupe::LaunchEnvironment::read(lookup); });
  }
  Folder home;
  std::optional<troupe::LaunchEnvironment> found;
  std::string error;
};

const std::string kUser = std::to_string(geteuid());

}  // namespace

TEST_CASE("what mpirun and srun say of a job is its address, and a file of the user's its secret",
          "[process]") {
  const std::map<std::string, std::string> mpirun = {
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_MCA_ess_base_jobid", "1548288001"},
      {"OMPI_MCA_orte_hnp_uri", "1548288000.0;tcp://192.0.2.2,10.0.0.1:48311;tcp6://[fd00::2]:39999"}};
  const std::map<std::string, std::string> srun = {{"SLURM_PROCID", "1"},
                                                   {"SLURM_STEP_NUM_TASKS", "4"},
                                                   {"SLURM_NTASKS", "8"},
                                                   {"SLURM_STEP_NUM_NODES", "2"},
                                                   {"SLURM_STEP_NODELIST", "node[03,07-9],other"},
                                                   {"SLURM_JOB_ID", "17"},
                                                   {"SLURM_STEP_ID", "0"}};
  const auto with = [](std::map<std::string, std::string> variables, const std::string& name,
                       const std::string& value) {
    variables[name] = value;
    return Reading(variables);
  };
  const Reading here = with(mpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "4"), there(mpirun);
  REQUIRE((here.found && there.found));
  CHECK(here.found->address == "unix:@troupe-" + kUser + "-ompi-1548288001");
  CHECK(there.found->address.starts_with("tcp:192.0.2.2:2"));
  CHECK_THAT(there.found->address_note,
             Catch::Contains("OMPI_MCA_orte_hnp_uri") && Catch::Contains("TROUPE_ADDRESS="));
  CHECK(there.found->rank == 1);
  CHECK(there.found->world == 4);
  const std::string token = content(there.home.path / ".config/troupe/token");
  CHECK(token.size() == 64);
  CHECK(there.found->token == token);
  CHECK_THAT(there.found->token_note, Catch::Contains("/.config/troupe/token"));
  CHECK(here.found->token != token);

  const Reading one_node = with(srun, "SLURM_STEP_NUM_NODES", "1"), nodes(srun),
                next = with(srun, "SLURM_STEP_ID", "1");
  REQUIRE((one_node.found && nodes.found && next.found));
  CHECK(one_node.found->address == "unix:@troupe-" + kUser + "-slurm-17.0");
  CHECK(nodes.found->address.starts_with("tcp:node03:2"));
  CHECK(nodes.found->world == 4);
  CHECK(next.found->address != nodes.found->address);  // steps of one job do not meet each other
  CHECK(with(srun, "SLURM_STEP_NODELIST", "gpu1,gpu2").found->address.starts_with("tcp:gpu1:"));
  CHECK(with(srun, "SLURM_STEP_NODELIST", "gpu1").found->address.starts_with("tcp:gpu1:"));

  // mpirun within a batch script, whose variables its processes inherit.
  auto both = mpirun;
  both["SLURM_PROCID"] = "0", both["SLURM_NTASKS"] = "4", both["SLURM_JOB_ID"] = "17";
  CHECK(Reading(both).found->source == "OMPI_COMM_WORLD_RANK");
  // srun --mpi=pmi2 sets both, and Slurm's say more.
  auto pmi = srun;
  pmi["PMI_RANK"] = "1", pmi["PMI_SIZE"] = "4";
  CHECK(Reading(pmi).found->source == "SLURM_PROCID");

  // What somebody has said goes before it.
  const Reading said = with(mpirun, "TROUPE_ADDRESS", "tcp:host0:29500"),
                secret = with(mpirun, "TROUPE_TOKEN", kToken);
  CHECK(said.found->address == "tcp:host0:29500");
  CHECK(said.found->address_note.empty());
  CHECK(secret.found->token == kToken);
  CHECK(secret.found->token_note.empty());
  CHECK_FALSE(std::filesystem::exists(secret.home.path / ".config"));
}

TEST_CASE("a pod of an indexed Job is one of a cluster where its template says how many there are",
          "[process]") {
  std::map<std::string, std::string> pod = {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}};
  CHECK(
      Reading(pod).error ==
      "[launch] JOB_COMPLETION_INDEX is set, but not where worker 0 is: set TROUPE_ADDRESS=tcp:HOST:PORT, or "
      "MASTER_ADDR and MASTER_PORT, the same for all workers, in the Job's template");
  pod["MASTER_ADDR"] = "job-0.svc", pod["MASTER_PORT"] = "29500";
  CHECK(Reading(pod).error ==
        "[launch] no cluster token: set TROUPE_TOKEN, from a Secret, in the Job's template");
  const Folder mounted;  // a Secret, as a pod with fsGroup has it
  pod["TROUPE_TOKEN_FILE"] = mounted.file("token", kToken, 0440);
  CHECK_THAT(Reading(pod).error,
             Catch::Contains("mode is 0440, so that other users can get at the token") &&
                 Catch::EndsWith("; in a pod TROUPE_TOKEN may come from the Secret itself"));
  pod["TROUPE_TOKEN"] = kToken;
  const Reading whole(pod);
  REQUIRE(whole.found);
  CHECK(whole.found->rank == 2);
  CHECK(whole.found->world == 3);
  CHECK(whole.found->address == "tcp:job-0.svc:29500");
  pod["JOB_COMPLETION_INDEX"] = "3";
  CHECK(Reading(pod).error == "[launch] JOB_COMPLETION_INDEX=3 is not below WORLD_SIZE=3");
}

TEST_CASE("the templates for Kubernetes and Slurm start a cluster", "[process]") {
  const std::string deploy = std::string(kSourceFolder) + "/deploy/";
  std::istringstream yaml(content(deploy + "indexed-job.yaml"));
  std::map<std::string, std::string> pod{{"JOB_COMPLETION_INDEX", "2"}};
  for (std::string line; std::getline(yaml, line);) {
    const size_t at = line.find("- {name: ");
    if (at == std::string::npos) continue;
    const std::string entry = line.substr(at + 9);
    const size_t value = entry.find("value: ");
    std::string text = value == std::string::npos ? kToken : entry.substr(value + 7);
    text = text.substr(text.starts_with('"'), text.find_first_of("\"}", 1) - text.starts_with('"'));
    pod[entry.substr(0, entry.find(','))] = text;
  }
  const Reading whole(pod);
  INFO(whole.error);
  REQUIRE(whole.found);
  CHECK(whole.found->rank == 2);
  CHECK(whole.found->world == 3);
  CHECK(whole.found->address == "tcp:mine-0.mine:29500");
  CHECK(whole.found->token == kToken);

  const Folder folder;  // with what stands for srun, on one node
  folder.file("srun",
              "#!/bin/sh\nshift\nfor i in 0 1 2 3; do\n  SLURM_PROCID=$i SLURM_STEP_NUM_TASKS=4 "
              "SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=0 \"$@\" &\ndone\nwait\n",
              0700);
  Process batch({"/bin/bash", deploy + "slurm.sh", program("probe")},
                {"PATH=" + folder.path.string() + ":/usr/bin:/bin", "HOME=" + folder.path.string(),
                 "SLURM_CPUS_PER_TASK=1", "SLURM_JOB_ID=" + std::to_string(getpid())});
  const int code = batch.exit_code();
  INFO(batch.output << batch.errors);
  CHECK(code == 0);
  CHECK(batch.line("together") == " w0 w1 w2 w3");
}

TEST_CASE("variables that say half, or contradict each other, are both named", "[process]") {
  CHECK(Reading({{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "host0"}}).error ==
        "[launch] MASTER_ADDR is set but MASTER_PORT is not: set both, or TROUPE_ADDRESS in their place");
  CHECK(Reading({{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", "29500"}}).error ==
        "[launch] MASTER_PORT is set but MASTER_ADDR is not: set both, or TROUPE_ADDRESS in their place");
  std::map<std::string, std::string> by_hand = {
      {"RANK", "0"},         {"WORLD_SIZE", "3"},          {"MASTER_ADDR", "host0"}, {"MASTER_PORT", "29500"},
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}};
  CHECK(Reading(by_hand).error ==
        "[launch] RANK is 0 and SLURM_PROCID is 1, each of 3: unset RANK and WORLD_SIZE to follow the "
        "launcher");
  by_hand["LOCAL_RANK"] = "0";  // a launcher within a launcher
  CHECK(Reading(by_hand).error == "no error");
  by_hand.erase("LOCAL_RANK");
  by_hand["SLURM_PROCID"] = "0";
  CHECK(Reading(by_hand).error == "no error");
}

namespace {

// With no variable set by hand, nor by `sh -c` between the two.
void starts_programs(const std::string& name) {
  const Folder home;
  const Variables variables = {"HOME=" + home.path.string(), "OMPI_ALLOW_RUN_AS_ROOT=1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1"};
  const std::string mpirun = installed(name, variables);
  if (mpirun.empty()) return skip_test("there is no " + name + " (Debian's openmpi-bin and mpich have them)");
  for (const bool by_shell : {false, true}) {
    std::vector<std::string> command{mpirun, "-n", "3"};
    if (by_shell) command.insert(command.end(), {"sh", "-c", program("probe") + "; exit $?"});
    if (!by_shell) command.push_back(program("probe"));
    Process job(command, variables);
    const int code = job.exit_code();
    INFO(name << " " << by_shell << ": " << job.output << job.errors);
    CHECK(code == 0);
    CHECK(job.line("together") == " w0 w1 w2");
    CHECK(job.line("address ").starts_with("unix:@troupe-" + kUser + "-"));
    CHECK(job.errors == "");
  }
  Process one({mpirun, "-n", "1", program("endings"), "--mode", "alone"}, variables);
  CHECK(one.exit_code() == 0);
  CHECK(one.output == "workers 3\n");
}

}  // namespace

TEST_CASE("mpirun of Open MPI starts a program", "[process]") { starts_programs("mpirun.openmpi"); }
TEST_CASE("mpirun of MPICH starts a program", "[process]") { starts_programs("mpirun.mpich"); }

TEST_CASE("programs with one home folder share a secret, and with two, the refusal names the files",
          "[process]") {
  Site site;
  Site other;
  other.port = site.port;
  const auto at_home = [](const Site& from, int rank) {
    auto variables = from.of(rank, 2);
    variables.back() = "HOME=" + from.folder.path.string();
    return variables;
  };
  Process driver({program("probe")}, at_home(site, 0));
  await_driver(site);
  refused(at_home(other, 1), 3,
          {"refused the cluster token",
           "This side's comes from " + other.folder.path.string() + "/.config/troupe/token",
           "TROUPE_TOKEN_FILE"});
  auto worker = start(at_home(site, 1));
  ends_well(worker);
  ends_well(driver);
}

TEST_CASE("a worker listens where worker 0's host reaches it, without being told", "[process]") {
  ifaddrs* list = nullptr;
  REQUIRE(getifaddrs(&list) == 0);
  char host[INET_ADDRSTRLEN] = "";
  for (const ifaddrs* i = list; i && !*host; i = i->ifa_next)
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !(i->ifa_flags & IFF_LOOPBACK) &&
        (i->ifa_flags & IFF_UP))
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, host, sizeof host);
  freeifaddrs(list);
  if (!*host) return skip_test("there is no interface but loopback");
  const Site site;
  const auto variables = [&](int rank) {
    auto all = site.of(rank, 2);
    all[2] = "MASTER_ADDR=" + std::string(host);
    return all;
  };
  Process driver({program("probe")}, variables(0)), worker({program("probe")}, variables(1));
  ends_well(worker);
  ends_well(driver);
  CHECK(Process::count(driver.output, "address tcp:" + std::string(host) + ":") == 2);
  CHECK(Process::count(driver.output, "address tcp:") == 2);
}
