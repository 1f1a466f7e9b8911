// Says what a program and its actors draw.
#include "tests/process/programs/seeds.h"
using namespace troupe;

int main() {
  return launch(hosting<testing::Drawer>(), [](Cluster& cluster) {
    testing::draw_everywhere(cluster, [](const std::string& line) { std::printf("%s\n", line.c_str()); });
  });
}
