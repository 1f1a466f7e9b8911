// Workers whose links are encrypted, and jobs in which that is half set; certificates, made as the page says.
#include "tests/process/by_hand.h"

using namespace troupe::testing;

namespace {

// A driver and a worker by TCP.
Variables by_tls(const Site& site, int rank, const std::string& tls) {
  return with(site.of(rank, 2), "TROUPE_TLS=" + tls);
}

// Certificates of this host, by the commands of docs/howto/launch.md.
struct Certified : Site {
  Certified() {
    const std::string page = content(std::filesystem::path(kSourceFolder) / "docs/howto/launch.md"),
                      mark = "<!-- run by: tests/process/tls_test.cpp -->\n```sh\n";
    const size_t begin = page.find(mark);
    REQUIRE(begin != std::string::npos);
    const size_t from = begin + mark.size();
    std::string script = page.substr(from, page.find("```", from) - from);
    const std::string theirs = "DNS:node1,IP:10.0.0.1";
    REQUIRE(script.find(theirs) != std::string::npos);
    script.replace(script.find(theirs), theirs.size(), "DNS:localhost,IP:127.0.0.1");
    Process commands({"/bin/sh", "-ec", "cd " + folder.path.string() + "\n" + script});
    const int code = commands.exit_code();
    INFO(commands.errors);
    REQUIRE(code == 0);
  }
  Variables by_certificate(int rank) const {
    const std::string at = folder.path.string();
    return with(with(with(by_tls(*this, rank, "require"), "TROUPE_TLS_CERTIFICATE=" + at + "/node1.pem"),
                     "TROUPE_TLS_KEY=" + at + "/node1.key"),
                "TROUPE_TLS_CA=" + at + "/authority.pem");
  }
};

}  // namespace

TEST_CASE("workers that all have TROUPE_TLS meet and work", "[process]") {
  for (const char* tls : {"require", "1"}) {
    const Site site;
    Process driver({program("probe")}, by_tls(site, 0, tls)),
        worker({program("probe")}, by_tls(site, 1, tls));
    ends_well(worker);
    ends_well(driver);
    CHECK(driver.line("together") == " w0 w1");
    CHECK(driver.errors == "");
  }
}

TEST_CASE("TROUPE_TLS of some workers alone is refused, and both sides say what to set", "[process]") {
  for (const auto& [driver_has, worker_has, driver_says, worker_says] :
       {std::tuple("require", "0", "it speaks plain TCP, and this side TLS alone",
                   "speaks TLS alone, and this side plain TCP"),
        std::tuple("0", "require", "it speaks TLS alone, and this side plain TCP",
                   "speaks plain TCP, and this side TLS alone")}) {
    const Site site;
    Process driver({program("probe")}, by_tls(site, 0, driver_has));
    await_driver(site);
    refused(by_tls(site, 1, worker_has), 3, {worker_says, "give all workers the same TROUPE_TLS"});
    driver.await_error(driver_says);
    driver.await_error("give all workers the same TROUPE_TLS");
    driver.signal(SIGTERM);
    CHECK(driver.exit_code() == 143);
  }
}

TEST_CASE("workers with certificates that are made as the page says meet and work", "[process]") {
  if (installed("openssl").empty()) return skip_test("no openssl here");
  const Certified site;
  Process driver({program("probe")}, site.by_certificate(0)),
      worker({program("probe")}, site.by_certificate(1));
  ends_well(worker);
  ends_well(driver);
  CHECK(driver.line("together") == " w0 w1");
  CHECK(driver.errors == "");
  // Who has the token alone is refused.
  Process again({program("probe")}, site.by_certificate(0));
  await_driver(site);
  refused(by_tls(site, 1, "require"), 3, {"shows a certificate, and this side goes by the token's key"});
  again.await_error("goes by the token's key, and this side by certificates");
  again.signal(SIGTERM);
  CHECK(again.exit_code() == 143);
}

TEST_CASE("variables of certificates that are half set, or wrong, end a program with 2", "[process]") {
  const Site site;
  const auto variables = by_tls(site, 1, "1");
  refused(with(variables, "TROUPE_TLS_CERTIFICATE=/no/such"), 2,
          {"[launch] TROUPE_TLS_CERTIFICATE is set but TROUPE_TLS_", " is not: set the files of"});
  const auto all = with(with(variables, "TROUPE_TLS_CERTIFICATE=/no/such"), "TROUPE_TLS_KEY=/no/such");
  refused(with(all, "TROUPE_TLS_CA=/no/such"), 2,
          {"[launch] TROUPE_TLS_CERTIFICATE: /no/such: no such file"});
  refused({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
           "TROUPE_TOKEN_FILE=" + site.token, "TROUPE_TLS_CERTIFICATE=/a", "TROUPE_TLS_KEY=/b",
           "TROUPE_TLS_CA=/c"},
          2, {"is set, but without TROUPE_TLS no link is encrypted: set TROUPE_TLS to 1 or require"});
}
