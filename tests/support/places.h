// Where the tests find the files and programs of this build. One unit knows the paths, so that compiler
// caches serve the others in any checkout.
#pragma once

namespace troupe::testing {

extern const char* const kSourceFolder;
extern const char* const kOracleFolder;
extern const char* const kTroupeCommand;  ///< the built `troupe`
extern const char* const kText;           ///< a file of plain English that stays

}  // namespace troupe::testing
