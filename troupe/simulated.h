// Clusters on a simulated network and clock, for tests of programs that use actors: one seed is one run, and
// what breaks is an argument.
#pragma once
#include "troupe/simulated/simulate.h"
#include "troupe/troupe.h"
