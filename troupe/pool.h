// Pools of actors that do the same work, and go on when some are lost.
#pragma once
#include "troupe/pool/pool.h"
