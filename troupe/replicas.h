// Data parallel training: replicas that average their gradients.
#pragma once
#include "parallel/data/replicas.h"
#include "troupe/troupe.h"
