// What programs that train use of this layer: flags, a bar, charts.
#pragma once
#include "tools/draw/chart.h"
#include "tools/draw/training.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
