// Parameter servers: served parameters, modules and embedding tables, and their clients.
#pragma once
#include "parallel/server/served_gradients.h"
#include "parallel/server/served_module.h"
#include "parallel/server/served_parameters.h"
#include "parallel/server/served_table.h"
#include "parallel/server/server.h"
#include "parallel/server/table.h"
#include "troupe/troupe.h"
