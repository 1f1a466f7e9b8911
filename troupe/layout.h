// Models that a layout file places: on which workers, cut in which ways.
#pragma once
#include "parallel/layout/build.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
