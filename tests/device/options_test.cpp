// Options that are made of several operators, on a device that the host cannot touch.
#include "tests/support/null_device.h"
#include "tests/support/option_cases.h"

using namespace troupe;

TEST_CASE("options give on the null device what they give on the CPU") {
  testing::install_null_device();
  testing::options_give_the_same_on(testing::null0);
}
