#include "tests/support/places.h"

#include <cstdlib>
#include <string>

namespace troupe::testing {
namespace {

// TROUPE_TEST_SOURCE: where the files are on a machine that did not build this program.
const std::string& source() {
  static const char* const moved = std::getenv("TROUPE_TEST_SOURCE");
  static const std::string folder = moved ? moved : TROUPE_SOURCE_DIR;
  return folder;
}
const char* in_source(const char* path) { return (new std::string(source() + path))->c_str(); }

}  // namespace

const char* const kSourceFolder = source().c_str();
const char* const kOracleFolder = in_source("/tests/oracle");
const char* const kTroupeCommand = TROUPE_BIN;
const char* const kText = in_source("/LICENSE");

}  // namespace troupe::testing
