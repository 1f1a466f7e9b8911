// docs/reference/operators.md is what the registries say.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "tests/pytorch/signatures.h"
#include "tests/support/places.h"

using namespace troupe;

namespace {

std::string path() { return testing::kSourceFolder + std::string("/docs/reference/operators.md"); }

}  // namespace

TEST_CASE("docs/reference/operators.md is what the registries say") {
  std::ifstream file(path());
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  INFO("pytorch_tests \"[write]\" writes it anew");
  const std::string page = testing::names_page();
  const bool same = kept == page, whole = page.find("| ?") == std::string::npos;
  CHECK(same);
  CHECK(whole);
}

TEST_CASE("writes docs/reference/operators.md", "[.write]") {
  std::ofstream(path()) << testing::names_page();
  CHECK(std::ifstream(path()).good());
}
