// Groups of workers or actors: sums, gathers and other operations that all members call.
#pragma once
#include "collective/group.h"
#include "collective/mesh.h"
#include "troupe/troupe.h"
