// In test programs leaks at the end of a cluster are errors, and fail the test that made it.
#include <catch2/catch.hpp>

#include <cstdlib>

#include "troupe/cluster/cluster.h"

namespace {

[[maybe_unused]] const bool kWatched = [] {
  setenv("TROUPE_LEAK_CHECK", "error", /*overwrite=*/0);
  troupe::Cluster::on_leak([](const troupe::Error& e) { FAIL_CHECK(e.what()); });
  return true;
}();

}  // namespace
