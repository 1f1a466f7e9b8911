#include "tests/support/places.h"

#include <cstdio>
#include <cstdlib>

namespace troupe::testing {
namespace {

char source[1024] = TROUPE_SOURCE_DIR, oracle[1024] = TROUPE_SOURCE_DIR "/tests/oracle",
     text[1024] = TROUPE_SOURCE_DIR "/LICENSE";

// TROUPE_TEST_SOURCE: where the files are on a machine that did not build this program. Before variables of
// tests are made, which may use the names.
[[gnu::constructor(101)]] void move() {
  const char* const moved = std::getenv("TROUPE_TEST_SOURCE");
  if (!moved) return;
  std::snprintf(source, sizeof source, "%s", moved);
  std::snprintf(oracle, sizeof oracle, "%s/tests/oracle", moved);
  std::snprintf(text, sizeof text, "%s/LICENSE", moved);
}

}  // namespace

const char* const kSourceFolder = source;
const char* const kOracleFolder = oracle;
const char* const kTroupeCommand = TROUPE_BIN;
const char* const kText = text;

}  // namespace troupe::testing
