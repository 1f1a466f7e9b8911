#include "tests/support/places.h"

namespace troupe::testing {

const char* const kSourceFolder = TROUPE_SOURCE_DIR;
const char* const kOracleFolder = TROUPE_SOURCE_DIR "/tests/oracle";
const char* const kTroupeCommand = TROUPE_BIN;
const char* const kText = TROUPE_SOURCE_DIR "/LICENSE";

}  // namespace troupe::testing
