// Several programs on one cluster of real processes: each trains on workers that it has claimed, and leaves
// nothing there, however it ends.
#include "tests/claims/served.h"

using namespace troupe::testing;

namespace {

std::string losses(const std::string& output, size_t most = 30) {
  std::string all;
  size_t at = 0;
  for (size_t i = 0; i < most && (at = output.find("loss ", at)) != std::string::npos; ++i) {
    const size_t end = output.find('\n', at);
    all += output.substr(at, end - at) + "\n";
    at = end;
  }
  return all;
}

std::string trained(const Served& cluster, const std::vector<std::string>& workers) {
  Process guest(cluster.guest("train", workers));
  const int code = guest.exit_code();
  INFO(guest.output << guest.errors);
  REQUIRE(code == 0);
  return losses(guest.output);
}

// Why it is refused.
std::string refusal(const Served& cluster, const std::string& what, const std::vector<std::string>& workers) {
  Process guest(cluster.guest(what, workers));
  CHECK(guest.exit_code() == 1);
  return guest.errors;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("two programs train side by side, one is killed, and the other has the bits that it has alone") {
  const Served cluster;
  const std::string alone = trained(cluster, {"w1", "w2"});
  CHECK(Process::count(alone, "\n") == 30);
  CHECK(cluster.is_left_by_all({"w0", "w1", "w2", "w3", "w4"}));

  Process killed(cluster.guest("on", {"w3", "w4"})), on(cluster.guest("on", {"w1", "w2"}));
  killed.await("trains\n");
  on.await("trains\n");
  killed.signal(SIGKILL);  // in the middle of a step
  CHECK(cluster.is_left_by_all({"w3", "w4"}));
  CHECK(has(cluster.left("w1"), "claims 1"));
  CHECK(trained(cluster, {"w3", "w4"}) == alone);
  on.await("loss 60 ");
  CHECK(losses(on.output) == alone);
  on.signal(SIGKILL);
  CHECK(cluster.is_left_by_all({"w0", "w1", "w2", "w3", "w4"}));
}

TEST_CASE("a program that is killed as it sends for the n-th time leaves nothing, for every n") {
  const Served cluster;
  int64_t died = 0;
  for (bool ends = false; !ends; ++died) {
    INFO("killed at message " << died + 1);
    Process guest(cluster.guest("die" + std::to_string(died + 1), {"w1", "w2"}));
    const int code = guest.exit_code();
    INFO(guest.output << guest.errors);
    ends = code == 0;
    REQUIRE((ends || code == 137));
    REQUIRE(cluster.is_left_by_all({"w0", "w1", "w2"}));
  }
  CHECK(died > 30);
}

TEST_CASE("a program with launch is a guest by its environment, with the same bits") {
  const Served cluster;
  const std::string alone = trained(cluster, {"w3", "w4"});
  Process launched({program("guests")}, {"TROUPE_ATTACH=" + cluster.job});
  const int code = launched.exit_code();
  INFO(launched.output << launched.errors);
  CHECK(code == 0);
  CHECK(losses(launched.output) == alone);
  Process lost({program("guests")}, {"TROUPE_ATTACH=no-such-job"});
  CHECK(lost.exit_code() == 3);
  CHECK(
      has(lost.errors, "no job of yours runs on this host whose name or program begins with 'no-such-job'"));
}

TEST_CASE("programs that share workers train beside each other with the same bits") {
  const Served cluster("w1");
  const std::string own = cluster.left("w1");
  CHECK(has(own, "actors 1 "));
  Process on(cluster.guest("share on", {"w1", "w2"}));
  on.await("trains\n");
  Process guest(cluster.guest("share", {"w1", "w2"}));
  REQUIRE(guest.exit_code() == 0);
  on.await("loss 60 ");
  CHECK(losses(on.output) == losses(guest.output));
  CHECK(has(refusal(cluster, "train", {"w1", "w2"}), "w1 is claimed by guests (process "));
  on.signal(SIGKILL);
  CHECK(eventually([&] { return cluster.left("w1") == own; }));
  CHECK(cluster.is_left_by_all({"w2"}));
}

TEST_CASE("a worker is claimed by one program, or used by the job's own, and the refusal says by which") {
  const Served cluster("w1");
  Process holds(cluster.guest("hold", {"w2", "w3"}));
  holds.await("claimed w2 w3\n");
  const std::string text = refusal(cluster, "hold", {"3"});
  INFO(text);
  CHECK(has(text, "wants 3 of w1, w2, w3, w4 for itself, and 1 is free: "));
  CHECK(has(text,
            "w1 has an actor of others: Half#0:1 on w1 of the job's own program; w2 is claimed by guests "
            "(process "));
  CHECK(has(text, "take what is free: Claim(cluster, {\"w4\"})"));
  CHECK(cluster.left("w4").empty());
  CHECK(has(refusal(cluster, "hold", {"w0"}), "the job's own program runs on w0"));
  CHECK(has(refusal(cluster, "spawn", {"w4"}), "[spawn] w2 is claimed by guests (process "));
  CHECK(cluster.is_left_by_all({"w4"}));
  CHECK(has(refusal(cluster, "unclaimed", {"w4"}), "this guest has not claimed w4: gradients run through"));
  CHECK(cluster.is_left_by_all({"w4"}));
  // A program that dies in the middle of its claim has none, once w0 has heard of its end.
  Process waits(cluster.guest("wait", {"w4"}));
  waits.await("wants\n");
  waits.signal(SIGKILL);
  holds.signal(SIGKILL);
  CHECK(eventually([&] { return Process(cluster.guest("claim", {"w2", "w3", "w4"})).exit_code() == 0; }));
}

TEST_CASE("a worker that is lost while it is claimed ends its program alone") {
  const Served cluster("", {"--keep-going"});
  Process on(cluster.guest("on", {"w1", "w2"}));
  on.await("trains\n");
  CHECK(has(refusal(cluster, "kill", {"w3", "w4"}), "worker w3 was lost"));
  CHECK(cluster.is_left_by_all({"w4"}));
  CHECK(has(refusal(cluster, "hold", {"w3"}), "w3"));
  on.await("loss 60 ");
}

TEST_CASE("spares of an elastic job are not for guests") {
  Launcher run({"--control", "--elastic", "--spares", "1", "-n", "3", program("guests")});
  run.await("planted\n");
  Process guest({program("guests"), run.line("job "), "hold", "3"});
  CHECK(guest.exit_code() == 1);
  INFO(guest.errors);
  CHECK(
      has(guest.errors, "wants 3 of w1, w2, w3 for itself, and 2 are free: w3 is a spare of the job's own"));
  run.signal(SIGKILL);
}

TEST_CASE("the end of the job's own program ends the guests, and leaves nothing to complain of") {
  Launcher run({"--control", "-n", "3", program("guests"), "ends"});
  run.await("planted\n");
  Process on({program("guests"), run.line("job "), "on", "w1", "w2"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(on.exit_code() == 1);
  INFO(on.errors);
  CHECK(has(on.errors, "was lost: "));
  CHECK(!has(run.errors, "leaked"));
}
