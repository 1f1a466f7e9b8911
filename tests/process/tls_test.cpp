// Workers whose links are encrypted, and jobs in which that is half set.
#include "tests/process/by_hand.h"

using namespace troupe::testing;

namespace {

// A driver and a worker by TCP.
Variables by_tls(const Site& site, int rank, const std::string& tls) {
  return with(site.of(rank, 2), "TROUPE_TLS=" + tls);
}

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
