// Data parallel training: replicas, members of a group, average their gradients.
#pragma once
#include "parallel/data/average_gradients.h"
#include "troupe/groups.h"
