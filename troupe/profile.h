// Profiles of a cluster: what a program includes for them.
#pragma once
#include "troupe/cluster/cluster.h"
#include "troupe/watch/profile.h"
